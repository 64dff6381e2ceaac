package redislease

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// The scripts. The header of each file says what it does.
var (
	lookScript    = script("look")
	reserveScript = script("reserve")
	markScript    = script("mark")
	confirmScript = script("confirm")
	renewScript   = script("renew")
	releaseScript = script("release")
	forgetScript  = script("forget")
)

// script returns a script with lease.lua before it.
func script(name string) *redis.Script {
	text := ""
	for _, file := range []string{"lease", name} {
		part, err := scriptFiles.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		text += string(part) + "\n"
	}
	return redis.NewScript(text)
}
