package bench

// Groups are samples of one kind by what was measured, in the order in which each was first measured.
type Groups[K comparable, S any] struct {
	Keys    []K
	samples map[K][]S
}

// GroupBy sorts samples into groups; within one they keep their order, which is that of the rounds.
func GroupBy[K comparable, S any](samples []S, key func(S) K) Groups[K, S] {
	groups := Groups[K, S]{samples: map[K][]S{}}
	for _, sample := range samples {
		k := key(sample)
		if groups.samples[k] == nil {
			groups.Keys = append(groups.Keys, k)
		}
		groups.samples[k] = append(groups.samples[k], sample)
	}
	return groups
}

// Of are the samples of a group.
func (g Groups[K, S]) Of(key K) []S { return g.samples[key] }

// Values is one figure of each sample of a group; none where nothing was measured under that key.
func (g Groups[K, S]) Values(key K, value func(S) float64) []float64 {
	values := make([]float64, len(g.samples[key]))
	for i, sample := range g.samples[key] {
		values[i] = value(sample)
	}
	return values
}
