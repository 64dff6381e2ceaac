package writes

import "context"

// sizesBytesMax bounds what all the records of one target come to.
const sizesBytesMax = 256 << 20

// sizes measures values of every size.
func (r *rig) sizes(ctx context.Context) error {
	if err := r.prime(ctx, r.layouts[0]); err != nil {
		return err
	}
	for _, size := range r.config.Sizes {
		l := r.layouts[0]
		l.resources = l.resources[:min(len(l.resources), max(someClientsMax, sizesBytesMax/size))]
		s := setting{layout: l, clients: r.someClients(), valueBytes: size}
		if err := r.compare(ctx, Case{Measure: Sizes}, r.only(nameDirect, nameStore, nameHTTP), s); err != nil {
			return err
		}
	}
	return nil
}
