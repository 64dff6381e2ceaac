package writes

import "context"

// sizesBytesMax bounds what all the records of one target come to.
const sizesBytesMax = 256 << 20

// sizes measures values of every size.
func (r *rig) sizes(ctx context.Context, report *Report) error {
	if err := r.prime(ctx, r.layouts[0]); err != nil {
		return err
	}
	for _, size := range r.config.Sizes {
		l := r.layouts[0]
		l.resources = l.resources[:min(len(l.resources), max(someClientsMax, sizesBytesMax/size))]
		var measurements []measurement
		for _, t := range r.only(nameDirect, nameStore, nameHTTP) {
			s, err := r.tuned(ctx, t, setting{layout: l, clients: r.someClients(), valueBytes: size}, report)
			if err != nil {
				return err
			}
			measurements = append(measurements, measurement{target: t, setting: s, warmUp: r.config.WarmUp,
				duration: r.config.Duration})
		}
		if err := r.rounds(ctx, Case{Measure: Sizes}, measurements, report); err != nil {
			return err
		}
	}
	return nil
}
