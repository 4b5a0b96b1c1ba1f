package testserver

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Rights are what a user of ClickHouse may do: settings with their constraints, and grants.
type Rights struct {
	settings, constraints strings.Builder // XML
	grants                []string
}

// The statements of which the files in configs/clickhouse consist.
var (
	createProfile = regexp.MustCompile(`(?s)^CREATE SETTINGS PROFILE IF NOT EXISTS (\w+) SETTINGS\s(.*)$`)
	createRole    = regexp.MustCompile(`^CREATE ROLE IF NOT EXISTS (\w+)(?: SETTINGS PROFILE '(\w+)')?$`)
	createUser    = regexp.MustCompile(`^CREATE USER IF NOT EXISTS (\w+) IDENTIFIED WITH sha256_password BY 'CHANGE-ME' DEFAULT ROLE (\w+)$`)
	grantRight    = regexp.MustCompile(`(?s)^(GRANT .* ON .*) TO (\w+)$`)
	revokeRight   = regexp.MustCompile(`(?s)^(REVOKE .* ON .*) FROM (\w+)$`)
	grantRole     = regexp.MustCompile(`^GRANT (\w+) TO (\w+)$`)

	setting = regexp.MustCompile(`^(\w+) = '?(\w+)'?(?: MIN (\d+))?(?: MAX (\d+))?( CONST)?$`)
)

// ReadRights reads the rights of a user, by way of its default role, from a file of SQL for
// administrators. It knows the statements that the files in configs/clickhouse have, and fails
// with others.
func ReadRights(t testing.TB, file, user string) *Rights {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	withoutComments := regexp.MustCompile(`(?m)^--.*\n?`).ReplaceAllString(string(text), "")

	profiles := map[string]string{}  // settings by the profile's name
	profileOf := map[string]string{} // by role
	grants := map[string][]string{}  // by role
	roles := map[string]string{}     // default roles by user
	granted := map[string]string{}   // roles that users were granted
	for statement := range strings.SplitSeq(withoutComments, ";\n") {
		statement = strings.TrimSpace(statement)
		match := func(form *regexp.Regexp) []string { return form.FindStringSubmatch(statement) }
		switch {
		case statement == "":
		case match(createProfile) != nil:
			profiles[match(createProfile)[1]] = match(createProfile)[2]
		case match(createRole) != nil:
			profileOf[match(createRole)[1]] = match(createRole)[2]
		case match(createUser) != nil:
			roles[match(createUser)[1]] = match(createUser)[2]
		case match(grantRight) != nil:
			grants[match(grantRight)[2]] = append(grants[match(grantRight)[2]], match(grantRight)[1])
		case match(revokeRight) != nil:
			grants[match(revokeRight)[2]] = append(grants[match(revokeRight)[2]], match(revokeRight)[1])
		case match(grantRole) != nil:
			granted[match(grantRole)[2]] = match(grantRole)[1]
		default:
			t.Fatalf("%s: a statement of no known form: %s", file, statement)
		}
	}

	role := roles[user]
	if role == "" || granted[user] != role || len(grants[role]) == 0 {
		t.Fatalf("%s: user %q has the default role %q and was granted %q, which has %d grants", file, user, role, granted[user], len(grants[role]))
	}

	r := &Rights{grants: grants[role]}
	r.addSettings(t, profiles[profileOf[role]])

	return r
}

// On returns the same rights on another database than delivery.
func (r *Rights) On(database string) *Rights {
	for i, grant := range r.grants {
		r.grants[i] = strings.ReplaceAll(strings.ReplaceAll(grant, "delivery.", database+"."), "delivery_finance.", database+"_finance.")
	}
	return r
}

func (r *Rights) addSettings(t testing.TB, profile string) {
	t.Helper()
	if profile == "" {
		return
	}

	for text := range strings.SplitSeq(profile, ",") {
		found := setting.FindStringSubmatch(strings.TrimSpace(text))
		if found == nil {
			t.Fatalf("a setting of no known form: %s", text)
		}

		name, value, least, most, isConstant := found[1], found[2], found[3], found[4], found[5] != ""
		fmt.Fprintf(&r.settings, "<%[1]s>%[2]s</%[1]s>", name, value)

		constraint := ""
		if least != "" {
			constraint += "<min>" + least + "</min>"
		}

		if most != "" {
			constraint += "<max>" + most + "</max>"
		}

		if isConstant {
			constraint += "<const/>"
		}

		if constraint != "" {
			fmt.Fprintf(&r.constraints, "<%[1]s>%[2]s</%[1]s>", name, constraint)
		}
	}
}

// Definer is a user with all rights whom an engine of StartAs knows beside its own: the definer of
// views.
const Definer = "definer"

// AllRights are those of somebody who may do everything.
func AllRights() *Rights { return &Rights{} }

// users is the file with the engine's users. Nobody but `default` can be reached over HTTP, so it is
// default who gets the rights.
func (r *Rights) users() string {
	var grants strings.Builder
	for _, grant := range r.grants {
		fmt.Fprintf(&grants, "<query>%s</query>\n", html.EscapeString(grant))
	}

	granted := ""
	if len(r.grants) > 0 {
		granted = "<grants>" + grants.String() + "</grants>"
	}

	const anyone = "<password></password><networks><ip>::/0</ip></networks><quota>default</quota>"

	return fmt.Sprintf(`<clickhouse>
<profiles><default/><limited>%s<constraints>%s</constraints></limited></profiles>
<quotas><default/></quotas>
<users>
<default>%s<profile>limited</profile>%s</default>
<%s>%[3]s<profile>default</profile></%[5]s>
</users>
</clickhouse>
`, r.settings.String(), r.constraints.String(), anyone, granted, Definer)
}

// StartAs starts a stopped engine, whose user default then has these rights and no others.
//
// The engine, a library, keeps no users made with SQL. So the test gives it those of the file as its
// configuration, which knows the same settings, constraints and grants and enforces them alike.
func (c *ClickHouse) StartAs(t testing.TB, r *Rights) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.xml")
	must(t, os.WriteFile(file, []byte(r.users()), 0o600))
	c.program.Args = append(slices.Clone(c.args), "-users", file)
	c.Start(t)
}

// DefineViews makes Definer the definer of a database's views that have one, as if that user had
// migrated. The engine runs with AllRights.
func (c *ClickHouse) DefineViews(t testing.TB, database string) {
	t.Helper()
	names := c.Exec(t, "SELECT name FROM system.tables WHERE database = '"+database+"' AND create_table_query LIKE '%DEFINER = default SQL SECURITY DEFINER%'")
	for _, name := range strings.Fields(names) {
		c.Exec(t, fmt.Sprintf("ALTER TABLE %s.%s MODIFY SQL SECURITY DEFINER DEFINER = %s", database, name, Definer))
	}
}
