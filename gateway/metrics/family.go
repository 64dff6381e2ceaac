package metrics

// Kind is the type of a family, as Prometheus names it.
type Kind string

// The kinds of families.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Family declares the metrics of one name.
type Family struct {
	Kind Kind
	Name string
	// Help says what it counts or measures, and in which unit.
	Help string
	// Look says what its values mean and what to do then. Only docs/metrics.md shows it.
	Look   string
	Labels []Label
	// Buckets are the upper bounds of a histogram.
	Buckets []float64
}

// Label is a label of a family. It has few values, whatever clients send: never a name or an owner.
type Label struct {
	Name string
	// Values are all possible values.
	Values []string
	// Open describes the values where they can't be listed.
	Open string
}

// subject is the families of one part of the gateway, as docs/metrics.md groups them.
type subject struct {
	title    string
	about    string // what its families have in common, if anything
	families []*Family
}

// subjects are in the order of docs/metrics.md.
var subjects = []*subject{
	leaseSubject, waitSubject, sessionSubject, writeSubject, groupSubject, rejectionSubject, tableSubject,
	inventorySubject,
	databaseSubject, redisSubject, sweepSubject, httpSubject, accessSubject, processSubject,
}

// declare adds a family. Every family is declared here, so docs/metrics.md misses none.
func (s *subject) declare(f Family) *Family {
	s.families = append(s.families, &f)
	return &f
}

func (s *subject) counter(name, help, look string, labels ...Label) *Family {
	return s.declare(Family{Kind: Counter, Name: name, Help: help, Look: look, Labels: labels})
}

func (s *subject) gauge(name, help, look string, labels ...Label) *Family {
	return s.declare(Family{Kind: Gauge, Name: name, Help: help, Look: look, Labels: labels})
}

func (s *subject) histogram(name, help, look string, buckets []float64, labels ...Label) *Family {
	return s.declare(Family{Kind: Histogram, Name: name, Help: help, Look: look, Buckets: buckets, Labels: labels})
}

// Families returns every declared family, in the order of docs/metrics.md.
func Families() []*Family {
	var all []*Family
	for _, s := range subjects {
		all = append(all, s.families...)
	}
	return all
}

func (f *Family) labelNames() []string {
	names := make([]string, len(f.Labels))
	for i, label := range f.Labels {
		names[i] = label.Name
	}
	return names
}
