package commands

import "strings"

// Where the command of a document is run.
const (
	OnMakeRun = "make run" // by TestCommands_OfTheDocumentsWorkWithMakeRun, as it stands
	OnCompose = "compose"  // by make compose-test, with the rest of its block
)

// A Place says where commands that begin alike are run: OnMakeRun, OnCompose, the name of another
// test, or why none does.
type Place struct{ Begins, Where string }

// Documents are the operators' documents besides the runbook, and where their commands are run.
// What stands between ```sh and ``` is pasted whole by TestMakeRun_DocumentsWorkAsPasted.
var Documents = map[string][]Place{
	"docs/operations.md": {
		{"for service in", OnCompose},
		{"docker compose up -d --no-deps --wait --force-recreate", OnCompose},
		{"done", OnCompose},
		{"docker compose --profile observe up -d --wait", OnCompose},
		{"docker compose logs -f alerts", "goes on until somebody ends it"},
		{"cd configs/prometheus/oncall", "TestOnCall_AlertsReachWhoIsToHearThem"},
		{"echo https://", "TestOnCall_AlertsReachWhoIsToHearThem"},
		{"chmod 640 *", "TestOnCall_AlertsReachWhoIsToHearThem"},
		{"docker compose --profile observe up -d --force-recreate alertmanager", OnCompose},
		{"docker compose stop gateway-1 gateway-2", OnCompose},
		{"docker compose start gateway-1 gateway-2", OnCompose},
		{"docker compose stop alertmanager", OnCompose},

		{"reporting admin-key ayse >> /etc/", "has a folder of the machine"},
		{"reporting audit --about", "has an id to fill in"},
		{"reporting audit", OnMakeRun},

		{"make backup TO=/mnt", "has a folder of the machine"},
		{"make backup", OnMakeRun},
		{"export ENVIRONMENT=production REDIS_URL=", "has an address to fill in"},
		{"reporting backup --to /mnt", "has a folder of the machine"},
		{"apt-get install age", "installs a package"},
		{"export RCLONE_", "TestBackup_ToS3KeepsTheNewestAndShowsNoHalfOne"},
		{"rclone", "TestBackup_ToS3KeepsTheNewestAndShowsNoHalfOne"},
		{"reporting restore --from /mnt", "has a folder of the machine"},
		{". ./.env", OnCompose},
		{"as_backup", OnCompose},
		{"in_backups", OnCompose},

		{"make restore FROM=", "TestBackup_RestoresWhatWasAcknowledgedBeforeIt"},
		{"make run", "TestMakeRun_DocumentsWorkAsPasted"},
		{"make report ARGS=reconcile", OnMakeRun},
		{"B=/backups/", OnCompose},
		{"docker compose stop", OnCompose},
		{"docker compose up -d --wait", OnCompose},
		{"docker compose exec -T clickhouse", OnCompose},
		{"docker compose exec -T reporting /reporting reconcile", OnCompose},
		{"make restore DRILL=yes FROM=/mnt", "has a folder of the machine"},
		{"make restore DRILL=yes FROM=drill", OnCompose},
		{"make restore DRILL=yes", OnMakeRun},
		{"mkdir -m 700 drill", OnCompose},

		{"make erase ARGS='--phone", OnMakeRun},
		{"make erase ARGS='--order", "has an id to fill in"},
		{"reporting erase --record /mnt", "has a folder of the machine"},

		{"export VERSION=", OnCompose},
		{"git checkout $REVISION", OnCompose},
		{"docker compose run --rm -T --no-deps", OnCompose},
		{"docker compose exec -T redis", OnCompose},
		{"sh /etc/redis-users.sh", OnCompose},
		{"REDISCLI_AUTH=", OnCompose},
	},
	"docs/keys.md":          {{"docker compose up -d --no-deps --wait gateway-1", OnCompose}},
	"docs/configuration.md": {{"docker compose run --rm --no-deps reporting /reporting user", "asks a person for a password"}},
}

// OfDocument returns the commands of a document that stand in indented blocks.
func OfDocument(name string) ([]Command, error) {
	text, err := readDocument(name)
	if err != nil {
		return nil, err
	}

	var commands []Command
	inFence, block := false, ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inFence = !inFence
		}

		command, isIndented := strings.CutPrefix(line, "    ")
		if !inFence && isIndented {
			block += command
			continue
		}

		commands = append(commands, commandsOf(name, block)...)
		block = ""
	}

	return append(commands, commandsOf(name, block)...), nil
}

// PlaceOf returns where a command is run: by the first place whose beginning it has, so that in
// Documents a longer beginning stands before a shorter one. It is empty if there is none.
func PlaceOf(c Command) string {
	for _, place := range Documents[c.Section] {
		if strings.HasPrefix(c.Line, place.Begins) {
			return place.Where
		}
	}
	return ""
}
