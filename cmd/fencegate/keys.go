package main

import (
	"context"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// keysCmds are the commands below "fencegate keys".
type keysCmds struct {
	Create keysCreateCmd `cmd:"" help:"Create an API key, and show it once."`
	List   keysListCmd   `cmd:"" aliases:"ls" help:"List the keys, the newest first."`
	Rotate keysRotateCmd `cmd:"" help:"Replace a key by a new one; the old one works on for a while."`
	Revoke keysRevokeCmd `cmd:"" help:"End a key at once."`
}

type keysCreateCmd struct {
	clientFlags
	Principal   string           `arg:"" help:"Name of the caller that the key is for."`
	Grant       []string         `help:"What it may do: scopes (lock, write, read, observe, admin, or all), a colon, and the name that this is for with all names below it; no name: every name. Can be repeated." required:"" sep:"none" placeholder:"SCOPES:NAME"`
	Description string           `help:"Any text." placeholder:"TEXT"`
	Lifetime    millisecondsFlag `help:"Time to its end, ${limits}. Default: none." set:"limits=1s to 87600h" placeholder:"DURATION"`
	InDatabase  string           `help:"PostgreSQL in which to create it, instead of by a gateway: for the first key of an administrator. Not FENCEGATE_DATABASE_URL, which is often set for the gateway." placeholder:"URL"`
}

// Help is shown by "fencegate keys create --help".
func (keysCreateCmd) Help() string {
	return "The key is written to standard output, and nobody can get it again. The first key of an administrator is made " +
		"with --in-database, which needs no key: fencegate keys create admin --grant all: --in-database URL"
}

// Run makes a key.
func (c *keysCreateCmd) Run(ctx context.Context, con *console) error {
	grants, err := access.ParseAll(c.Grant)
	if err != nil {
		return usagef("--grant %v", err)
	}
	if c.InDatabase != "" {
		return c.createDirectly(ctx, con, grants)
	}
	request := api.KeyRequest{
		Principal: c.Principal, Description: c.Description, Grants: access.Texts(grants), LifetimeMS: c.Lifetime.ms,
	}
	return answer(ctx, con, c.clientFlags, newKeyFields, func(ctx context.Context, gateway calls) (api.NewKey, error) {
		return gateway.CreateKey(ctx, request)
	})
}

// createDirectly makes a key without a gateway.
func (c *keysCreateCmd) createDirectly(ctx context.Context, con *console, grants []access.Grant) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := con.useDatabase("--in-database", c.InDatabase); err != nil {
		return err
	}
	st, err := postgres.Open(ctx, postgres.Config{DatabaseURL: c.InDatabase})
	if err != nil {
		return err
	}
	defer st.Close()
	request := store.KeyRequest{
		Principal: c.Principal, Description: c.Description, Grants: grants, CreatedBy: string(access.Database),
	}
	if c.Lifetime.ms != nil {
		request.Lifetime = time.Duration(*c.Lifetime.ms) * time.Millisecond
	}
	var text string
	text, request.ID, request.Digest = apikey.New()
	key, err := st.CreateKey(ctx, request)
	if store.OutcomeOf(err) != "" {
		return noDatabase("--in-database", err)
	} else if err != nil {
		return err
	}
	made := api.NewKey{Secret: text, Key: api.Key{
		ID: key.ID, Principal: key.Principal, Description: key.Description, Grants: access.Texts(key.Grants),
		CreatedAt: api.Time{Time: key.CreatedAt}, CreatedBy: key.CreatedBy,
	}}
	if !key.ExpiresAt.IsZero() {
		made.ExpiresAt = &api.Time{Time: key.ExpiresAt}
	}
	return con.show(made, newKeyFields(made))
}

func newKeyFields(key api.NewKey) []field {
	return append([]field{{"key", key.Secret}}, keyFields(key.Key)...)
}

func keyFields(key api.Key) []field {
	return []field{
		{"id", key.ID},
		{"principal", key.Principal},
		{"description", key.Description},
		{"grants", strings.Join(key.Grants, " ")},
		{"expires_at", optionalClock(key.ExpiresAt)},
		{"revoked_at", optionalClock(key.RevokedAt)},
	}
}

func optionalClock(at *api.Time) string {
	if at == nil {
		return ""
	}
	return clock(*at)
}

type keysListCmd struct{ listFlags }

// Run lists keys.
func (c *keysListCmd) Run(ctx context.Context, con *console) error {
	heading := []string{"ID", "PRINCIPAL", "GRANTS", "EXPIRES", "REVOKED", "LAST USED"}
	return listPages(ctx, con, c.listFlags, heading, keyRow,
		func(ctx context.Context, gateway calls, cursor string, limit int) ([]api.Key, string, error) {
			page, err := gateway.Keys(ctx, admin.KeysQuery{Limit: limit, Cursor: cursor})
			return page.Keys, page.NextCursor, err
		})
}

func keyRow(key api.Key) []string {
	return []string{
		key.ID, key.Principal, strings.Join(key.Grants, " "), optionalClock(key.ExpiresAt), optionalClock(key.RevokedAt),
		optionalClock(key.LastUsedAt),
	}
}

type keysRotateCmd struct {
	clientFlags
	ID       string           `arg:"" help:"The id of the key, which list shows."`
	Overlap  millisecondsFlag `help:"How long the old key still works, ${limits}." set:"limits=0s to 720h" default:"24h"`
	Lifetime millisecondsFlag `help:"Time to the end of the new key, ${limits}. Default: as long as that of the old one was." set:"limits=1s to 87600h" placeholder:"DURATION"`
}

// Run replaces a key.
func (c *keysRotateCmd) Run(ctx context.Context, con *console) error {
	request := api.RotateRequest{OverlapMS: c.Overlap.ms, LifetimeMS: c.Lifetime.ms}
	return answer(ctx, con, c.clientFlags, newKeyFields, func(ctx context.Context, gateway calls) (api.NewKey, error) {
		return gateway.RotateKey(ctx, c.ID, request)
	})
}

type keysRevokeCmd struct {
	clientFlags
	ID string `arg:"" help:"The id of the key, which list shows."`
}

// Run ends a key.
func (c *keysRevokeCmd) Run(ctx context.Context, con *console) error {
	return answer(ctx, con, c.clientFlags, keyFields, func(ctx context.Context, gateway calls) (api.Key, error) {
		return gateway.RevokeKey(ctx, c.ID)
	})
}

type whoamiCmd struct{ clientFlags }

// Run shows the principal of the credential.
func (c *whoamiCmd) Run(ctx context.Context, con *console) error {
	return answer(ctx, con, c.clientFlags, principalFields,
		func(ctx context.Context, gateway calls) (api.Principal, error) {
			return gateway.WhoAmI(ctx)
		})
}

func principalFields(principal api.Principal) []field {
	return []field{
		{"principal", principal.Principal},
		{"kind", principal.Kind},
		{"grants", strings.Join(principal.Grants, " ")},
		{"expires_at", optionalClock(principal.ExpiresAt)},
	}
}
