package gateway

import "testing"

// TestEveryRouteIsDescribed compares the routes with the paths of openapi.yaml, both ways.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	g, err := New(Config{}, nil, nil, NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	checkRoutes(t, g.routes())
}
