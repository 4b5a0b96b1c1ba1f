#!/bin/sh
# Starts Alertmanager with the addresses of the files in the folder ONCALL (/oncall) put into its
# settings, CONFIG: page-url takes the place of http://alerts:9094/page, and so on. The files
# that others of its settings name are read by Alertmanager itself. A line that is no URL ends it.
set -eu
settings=$(mktemp)
cp "${CONFIG:-/etc/alertmanager/alertmanager.yml}" "$settings"
for name in page ticket watchdog; do
    file=${ONCALL:-/oncall}/$name-url
    [ -s "$file" ] || continue
    url=$(head -n 1 "$file" | sed 's/[\\&|]/\\&/g')
    sed "s|http://alerts:9094/$name\$|'$url'|" "$settings" > "$settings.new"
    mv "$settings.new" "$settings"
done
exec "${ALERTMANAGER:-/bin/alertmanager}" --config.file="$settings" "$@"
