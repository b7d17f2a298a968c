package kafka

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker that does not answer is not waited for while another one may; the first answer counts.
func TestFirstOf(t *testing.T) {
	broken := errors.New("broken")
	silent := func(ctx context.Context) (*kmsg.MetadataResponse, error) { <-ctx.Done(); return nil, ctx.Err() }
	fails := func(context.Context) (*kmsg.MetadataResponse, error) { return nil, broken }
	answers := func(context.Context) (*kmsg.MetadataResponse, error) { return kmsg.NewPtrMetadataResponse(), nil }
	type question = func(context.Context) (*kmsg.MetadataResponse, error)
	for name, c := range map[string]struct {
		questions []question
		after     time.Duration
		err       error
	}{
		"the first answers":           {[]question{answers}, 0, nil},
		"the first is silent":         {[]question{silent, answers}, hedgeAfter, nil},
		"two are silent":              {[]question{silent, silent, answers}, 2 * hedgeAfter, nil},
		"all are silent":              {[]question{silent, silent, silent}, 15 * time.Second, context.DeadlineExceeded},
		"the first fails":             {[]question{fails}, 0, broken},
		"silent, and another fails":   {[]question{silent, fails, answers}, 2 * hedgeAfter, nil},
		"silent, and two others fail": {[]question{silent, fails, fails}, 15 * time.Second, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				start, next := time.Now(), make(chan question, len(c.questions))
				for _, q := range c.questions {
					next <- q
				}
				resp, err := firstOf(ctx, func(ctx context.Context) (*kmsg.MetadataResponse, error) { return (<-next)(ctx) })
				if !errors.Is(err, c.err) || (err == nil) != (resp != nil) || time.Since(start) != c.after {
					t.Errorf("%v and %v after %v, want %v after %v", resp, err, time.Since(start), c.err, c.after)
				}
			})
		})
	}
}
