package corpus

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

var (
	methods = [...]string{"GET", "GET", "GET", "GET", "GET", "GET", "POST", "POST", "PUT", "DELETE", "HEAD"}
	status  = [...]string{"200", "200", "200", "200", "200", "200", "200", "304", "301", "404", "201", "204", "500", "403"}
	routes  = [...]string{
		"/", "/index.html", "/assets/app-%x.js", "/assets/style-%x.css", "/img/products/%d/thumb.webp", "/img/products/%d/large.webp",
		"/api/v2/products/%d", "/api/v2/products/%d/reviews?page=%d", "/api/v2/search?q=item+%d&sort=price&page=%d", "/api/v2/cart/%x",
		"/api/v2/cart/%x/items/%d", "/api/v2/users/%d/orders", "/api/v2/orders/%d", "/login", "/logout", "/category/%d/page/%d",
		"/product/%d", "/health", "/static/fonts/inter-%d.woff2", "/api/v2/recommendations?user=%d&limit=20", "/checkout/step/%d",
		"/blog/post-%d", "/sitemap.xml", "/robots.txt", "/api/v2/session/%x/refresh", "/download/manual-%d.pdf",
	}
	referers = [...]string{
		"-", "https://www.shop.example/", "https://www.shop.example/category/%d/page/%d", "https://www.shop.example/product/%d",
		"https://search.example/?q=item+%d", "https://www.shop.example/checkout/step/%d", "https://news.example/%d/review",
	}
	services = [...]string{"checkout", "catalog", "payments", "inventory", "gateway", "mailer", "sessions", "search", "pricing", "shipping"}
	levels   = [...]string{"info", "info", "info", "info", "info", "debug", "debug", "warn", "error"}
	messages = [...]string{
		"request completed", "cache miss, reading from primary", "order accepted and queued for payment", "connection pool grown",
		"retrying upstream call after timeout", "feature flag evaluated", "session refreshed", "stock level updated",
		"payment authorised", "circuit breaker half open", "slow query", "message published",
	}
	daemons = [...]string{"sshd", "cron", "systemd", "kernel", "postfix/smtpd", "dhclient", "nginx", "dockerd", "sudo", "ntpd"}
	notes   = [...]string{
		"Accepted publickey for deploy from %s port %d ssh2", "session opened for user deploy(uid=%d)", "Started Session %d of user deploy.",
		"connect from unknown[%s]", "disconnect from unknown[%s]", "(root) CMD (run-parts /etc/cron.hourly %d)",
		"eth0: link up, %d Mbps", "DHCPACK from %s, renewal in %d seconds", "worker process %d exited with code 0",
		"time stepped by 0.%d s", "Failed password for invalid user admin from %s port %d", "Reloading after signal %d",
	}
	browsers = [...]string{
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.%d.%d Safari/537.36",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/%d.%d.%d Safari/605.1.15",
		"Mozilla/5.0 (X11; Linux x86_64; rv:%d.0) Gecko/20100101 Firefox/%d.%d",
		"Mozilla/5.0 (iPhone; CPU iPhone OS %d_%d like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E%d",
		"curl/%d.%d.%d", "kube-probe/1.%d (%d.%d)",
	}
)

// userAgents draws the fixed set of user agents of one corpus.
func userAgents(rng *rand.Rand) []string {
	agents := make([]string, 400)
	for i := range agents {
		agents[i] = fmt.Sprintf(browsers[rng.IntN(len(browsers))], 100+rng.IntN(30), rng.IntN(7000), rng.IntN(200))
	}
	return agents
}

func (g *Generator) appendAccess(dst []byte) []byte {
	dst = g.appendClient(dst)
	dst = append(dst, " - - ["...)
	dst = append(dst, g.stamp...)
	dst = append(dst, `] "`...)
	dst = append(dst, methods[g.rng.IntN(len(methods))]...)
	dst = append(dst, ' ')
	dst = g.appendFilled(dst, routes[g.rng.IntN(len(routes))])
	dst = append(dst, ` HTTP/1.1" `...)
	dst = append(dst, status[g.rng.IntN(len(status))]...)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, int64(g.pick(180_000)), 10)
	dst = append(dst, ` "`...)
	dst = g.appendFilled(dst, referers[g.rng.IntN(len(referers))])
	dst = append(dst, `" "`...)
	dst = append(dst, g.agents[g.pick(len(g.agents))]...)
	dst = append(dst, `" rt=0.`...)
	return appendPadded(dst, uint64(g.rng.IntN(1000)), 3)
}

func (g *Generator) appendJSON(dst []byte) []byte {
	service := services[g.pick(len(services))]
	dst = append(dst, `{"time":"`...)
	dst = append(dst, g.stamp...)
	dst = append(dst, '.')
	dst = appendPadded(dst, uint64(g.at.Nanosecond()/1000), 6)
	dst = append(dst, `Z","level":"`...)
	dst = append(dst, levels[g.rng.IntN(len(levels))]...)
	dst = append(dst, `","service":"`...)
	dst = append(dst, service...)
	dst = append(dst, `","version":"2.14.3","pod":"`...)
	dst = append(dst, service...)
	dst = append(dst, "-7d9c6b5f4-"...)
	dst = strconv.AppendInt(dst, int64(2800+g.pick(24)), 36)
	dst = append(dst, `","trace_id":"`...)
	dst = appendHex(dst, g.rng.Uint64())
	dst = append(dst, `","span_id":"`...)
	dst = appendHex(dst, g.rng.Uint64())
	dst = append(dst, `","request":{"method":"`...)
	dst = append(dst, methods[g.rng.IntN(len(methods))]...)
	dst = append(dst, `","path":"`...)
	dst = g.appendFilled(dst, routes[g.rng.IntN(len(routes))])
	dst = append(dst, `","client":"`...)
	dst = g.appendClient(dst)
	dst = append(dst, `","user_agent":"`...)
	dst = append(dst, g.agents[g.pick(len(g.agents))]...)
	dst = append(dst, `"},"status":`...)
	dst = append(dst, status[g.rng.IntN(len(status))]...)
	dst = append(dst, `,"duration_ms":`...)
	dst = strconv.AppendInt(dst, int64(g.pick(5000)), 10)
	dst = append(dst, `,"bytes":`...)
	dst = strconv.AppendInt(dst, int64(g.pick(180_000)), 10)
	dst = append(dst, `,"message":"`...)
	dst = append(dst, messages[g.pick(len(messages))]...)
	return append(dst, `"}`...)
}

func (g *Generator) appendSyslog(dst []byte) []byte {
	dst = append(dst, '<')
	dst = strconv.AppendInt(dst, int64(8*(1+g.pick(12))+3+g.rng.IntN(4)), 10)
	dst = append(dst, '>')
	dst = append(dst, g.stamp...)
	dst = append(dst, " web-"...)
	dst = appendPadded(dst, uint64(g.pick(40)), 2)
	dst = append(dst, ".dc1.example "...)
	dst = append(dst, daemons[g.pick(len(daemons))]...)
	dst = append(dst, '[')
	dst = strconv.AppendInt(dst, int64(200+g.rng.IntN(30_000)), 10)
	dst = append(dst, "]: "...)
	return g.appendFilled(dst, notes[g.rng.IntN(len(notes))])
}

func (g *Generator) appendClient(dst []byte) []byte {
	for i, b := range g.clients[g.pick(clientCount)] {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return dst
}

// appendFilled appends form with %d (a skewed number), %x (a 64-bit one) and %s (a client) filled in.
func (g *Generator) appendFilled(dst []byte, form string) []byte {
	for i := 0; i < len(form); i++ {
		if form[i] != '%' {
			dst = append(dst, form[i])
			continue
		}
		i++
		switch form[i] {
		case 'd':
			dst = strconv.AppendInt(dst, int64(g.pick(60_000)), 10)
		case 'x':
			dst = appendHex(dst, g.rng.Uint64())
		case 's':
			dst = g.appendClient(dst)
		default:
			panic("BUG: unknown verb in " + form)
		}
	}
	return dst
}

func appendHex(dst []byte, v uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[v>>shift&15])
	}
	return dst
}
