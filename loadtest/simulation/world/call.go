package world

import (
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The story shows so many commands of a pipeline, and so many bytes of each.
const (
	maxCommands = 3
	maxCommand  = 180
)

// describe reads a call's commands once, while its caller waits.
func (c *call) describe() {
	digest := sha256.New()
	var shown []string
	for i, command := range c.commands {
		var b strings.Builder
		for _, argument := range command.Args() {
			text := textOf(argument)
			fmt.Fprintf(digest, "%d:%s", len(text), text)
			if i < maxCommands && b.Len() < maxCommand {
				b.WriteString(readable(text))
				b.WriteByte(' ')
			}
		}

		digest.Write([]byte{'\n'})
		if i < maxCommands {
			shown = append(shown, strings.TrimSpace(b.String()))
		}
	}

	c.digest = hex.EncodeToString(digest.Sum(nil)[:8])
	c.text = strings.Join(shown, " | ")
	if more := len(c.commands) - len(shown); more > 0 {
		c.text += fmt.Sprintf(" | and %d more", more)
	}

	if block, found := blockOf(c.commands[0]); found && len(c.commands) == 1 {
		c.until = time.Now().Add(block)
		for _, argument := range c.commands[0].Args() {
			text := textOf(argument)
			if end := strings.IndexByte(text, '}'); end > 0 {
				prefix := text[:end+1]
				if !slices.Contains(c.prefix, prefix) {
					c.prefix = append(c.prefix, prefix)
				}
			}
		}
	}
}

// blockOf is how long a read waits for entries.
func blockOf(command redis.Cmder) (time.Duration, bool) {
	if command.Name() != "xread" {
		return 0, false
	}

	arguments := command.Args()
	for i, argument := range arguments {
		if argument == "block" {
			milliseconds, err := strconv.Atoi(textOf(arguments[i+1]))
			return time.Duration(milliseconds) * time.Millisecond, err == nil
		}
	}

	return 0, false
}

// read is the command of a read that waits for entries, without the wait.
func (c *call) read() *redis.XStreamSliceCmd {
	return redis.NewXStreamSliceCmd(context.Background(), c.withoutBlock()...)
}

func (c *call) withoutBlock() []any {
	arguments := slices.Clone(c.commands[0].Args())
	at := slices.Index(arguments, any("block"))
	return slices.Delete(arguments, at, at+2)
}

// copy keeps the arguments, which the caller may use again once it has an answer.
func (c *call) copy() {
	for _, command := range c.commands {
		arguments := make([]any, 0, len(command.Args()))
		for _, argument := range command.Args() {
			arguments = append(arguments, textOf(argument))
		}
		c.copied = append(c.copied, arguments)
	}

	if !c.until.IsZero() {
		c.copied = [][]any{}
		for _, argument := range c.withoutBlock() {
			if len(c.copied) == 0 {
				c.copied = append(c.copied, nil)
			}
			c.copied[0] = append(c.copied[0], textOf(argument))
		}
		c.until = time.Time{}
	}
}

// readCommands are those of Redis's commands that the programs use and that change nothing.
var readCommands = []string{
	"get", "mget", "strlen",
	"hget", "hmget", "hgetall",
	"xread", "xrange", "xrevrange", "xlen", "xinfo", "xpending",
	"zrange", "zrangebyscore", "zcard", "zscore", "zcount",
	"smembers", "scard",
	"exists", "type", "ttl", "pttl", "scan",
	"time", "info", "ping", "fcall_ro",
}

// onlyReads reports whether no command of the call can change anything.
func (c *call) onlyReads() bool {
	for _, command := range c.commands {
		if !slices.Contains(readCommands, command.Name()) {
			return false
		}
	}

	return true
}

// touches reports whether the call names a key of one of the partitions.
func (c *call) touches(prefixes []string) bool {
	for _, command := range c.commands {
		for _, argument := range command.Args() {
			text := textOf(argument)
			for _, prefix := range prefixes {
				if strings.HasPrefix(text, prefix) {
					return true
				}
			}
		}
	}

	return false
}

func textOf(argument any) string {
	switch value := argument.(type) {
	case string:
		return value
	case []byte:
		return string(value)
	case int64:
		return strconv.FormatInt(value, 10)
	case int:
		return strconv.Itoa(value)
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	case bool:
		if value {
			return "1"
		}
		return "0"
	case encoding.BinaryMarshaler:
		raw, _ := value.MarshalBinary() // what the ledger gives has no error
		return string(raw)
	}

	return fmt.Sprint(argument)
}

var functionDigest = regexp.MustCompile(`^([a-z_]+)_[0-9a-f]{16}$`)

// readable is an argument as a person can read it, cut where it is long.
func readable(text string) string {
	if found := functionDigest.FindStringSubmatch(text); found != nil {
		return found[1]
	}

	const most = 40
	cut := text
	if len(cut) > most {
		cut = cut[:most]
	}

	quoted := strconv.QuoteToASCII(cut)
	shown := quoted[1 : len(quoted)-1]
	if len(text) > most {
		shown += "…"
	}

	return shown
}
