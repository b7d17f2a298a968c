package kafkatest

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"
)

// A distribution lies under the cache directory (SHIPPER_KAFKA_CACHE, else the user's):
//
//	VERSION.lock         flocked by the process that makes it
//	VERSION-rN/          published by one rename when complete
//	  lib/*.jar          kafka_2.13 and what it needs, copied by Maven
//	  template/          a data directory as the storage tool formats it
//	  log4j.properties   in the dialect of that version
//	  classes.jsa        class data archive; without it a start takes longer
//
// layout is N: raise it when the content changes.
const layout = 1

// Bounds of making one.
const (
	mavenMax  = 5 * time.Minute
	formatMax = time.Minute
)

//go:embed pom.xml.tmpl
var pomTemplate string

// absentError says that something outside of this repository is not there.
type absentError struct{ err error }

func (e *absentError) Error() string { return e.err.Error() }
func (e *absentError) Unwrap() error { return e.err }

func absent(format string, args ...any) error {
	return &absentError{fmt.Errorf("kafkatest: "+format, args...)}
}

// dist is one version of Kafka on disk.
type dist struct {
	version string
	dir     string
	java    string

	archiveTo string // if set, brokers write a class archive there when they stop
}

func (d *dist) templateDir() string { return filepath.Join(d.dir, "template") }
func (d *dist) archive() string     { return filepath.Join(d.dir, "classes.jsa") }

// distributions remembers per version what obtain found, so that an absent Maven is
// asked for once per process.
var distributions struct {
	sync.Mutex
	found map[string]func() (*dist, error)
}

// obtain returns a version, fetching it when no earlier run did.
// An *absentError says what is missing.
func obtain(version string) (*dist, error) {
	distributions.Lock()
	once := distributions.found[version]
	if once == nil {
		once = sync.OnceValues(func() (*dist, error) { return findOrMake(version) })
		if distributions.found == nil {
			distributions.found = make(map[string]func() (*dist, error))
		}
		distributions.found[version] = once
	}
	distributions.Unlock()
	return once()
}

func findOrMake(version string) (*dist, error) {
	java, err := findJava()
	if err != nil {
		return nil, err
	}
	cache := os.Getenv(envCache)
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			user = os.TempDir()
		}
		cache = filepath.Join(user, "shipper-kafkatest")
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	d := &dist{version: version, java: java, dir: filepath.Join(cache, fmt.Sprintf("%s-r%d", version, layout))}
	if _, err := os.Stat(d.dir); err == nil {
		return d, nil
	}
	lock, err := os.OpenFile(filepath.Join(cache, version+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	defer lock.Close()
	// Waits for whoever makes it now, bounded by mavenMax and formatMax there.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	if _, err := os.Stat(d.dir); err == nil {
		return d, nil
	}
	if err := d.make(cache); err != nil {
		return nil, err
	}
	return d, nil
}

// make fetches and prepares everything in a directory of its own and publishes it by
// one rename: a crash leaves a directory *.new that the next maker removes.
func (d *dist) make(cache string) error {
	final := *d
	work := *d
	work.dir = final.dir + ".new"
	if err := os.RemoveAll(work.dir); err != nil {
		return fmt.Errorf("kafkatest: %w", err)
	}
	if err := os.MkdirAll(work.dir, 0o700); err != nil {
		return fmt.Errorf("kafkatest: %w", err)
	}
	if err := work.fetch(); err != nil {
		return err
	}
	if err := work.writeLogConfig(); err != nil {
		return err
	}
	if err := work.makeTemplate(); err != nil {
		return err
	}
	if err := os.Rename(work.dir, final.dir); err != nil {
		return fmt.Errorf("kafkatest: publish %s: %w", final.dir, err)
	}
	// The archive holds the class path it was made with, so it is made in place. It
	// only saves time: a Java that cannot make one runs without it.
	_ = final.makeArchive()
	return nil
}

// findJava returns the java of JAVA_HOME or of the path.
func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java := filepath.Join(home, "bin", "java")
		if _, err := os.Stat(java); err == nil {
			return java, nil
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", absent("no java found: set JAVA_HOME or install a Java 17 runtime")
	}
	return java, nil
}

// fetch lets Maven copy the jars to lib.
func (d *dist) fetch() error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return absent("Kafka %s was not fetched yet and no mvn (Maven) was found to do it", d.version)
	}
	tmpl := template.Must(template.New("pom").Parse(pomTemplate))
	var pom bytes.Buffer
	if err := tmpl.Execute(&pom, map[string]any{"Version": d.version, "Log4j2": d.log4j2()}); err != nil {
		return fmt.Errorf("BUG: kafkatest: pom template: %w", err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "pom.xml"), pom.Bytes(), 0o600); err != nil {
		return fmt.Errorf("kafkatest: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), mavenMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", filepath.Join(d.dir, "pom.xml"),
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(d.dir, "lib"))
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return absent("Maven could not fetch Kafka %s: %w: %s", d.version, err, firstLine(out))
	}
	return nil
}

// log4j2 tells which logging a version speaks: the artefacts carry no binding, and a
// broker without one is mute.
func (d *dist) log4j2() bool {
	major, _, err := majorMinor(d.version)
	return err == nil && major >= 4
}

// writeLogConfig makes the broker log to its standard output.
func (d *dist) writeLogConfig() error {
	text := `log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
`
	if d.log4j2() {
		text = `status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
`
	}
	if err := os.WriteFile(filepath.Join(d.dir, "log4j.properties"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("kafkatest: %w", err)
	}
	return nil
}

// makeTemplate runs the storage tool once. What it writes depends on node and cluster
// only in meta.properties, which node.format writes anew for each broker.
func (d *dist) makeTemplate() error {
	config := filepath.Join(d.dir, "format.properties")
	text := "process.roles=broker,controller\nnode.id=0\ncontroller.quorum.voters=0@127.0.0.1:9093\n" +
		"controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n" +
		"log.dirs=" + d.templateDir() + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("kafkatest: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), formatMax)
	defer cancel()
	args := append(d.javaArgs(), "kafka.tools.StorageTool", "format", "-t", newUUID(), "-c", config)
	cmd := exec.CommandContext(ctx, d.java, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return absent("Kafka %s does not run on this Java: format: %w: %s", d.version, err, firstLine(out))
	}
	return nil
}

// javaArgs are the options of every JVM, up to the main class: small, quick to start.
func (d *dist) javaArgs() []string {
	return []string{
		"-Xms48m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Xshare:auto", "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true",
		"-Dlog4j.configuration=file:" + filepath.Join(d.dir, "log4j.properties"),
		"-Dlog4j2.configurationFile=" + filepath.Join(d.dir, "log4j.properties"),
		"-cp", filepath.Join(d.dir, "lib") + "/*",
	}
}

// brokerCommand starts a broker with the class archive, if there is one.
func (d *dist) brokerCommand(config string) *exec.Cmd {
	var args []string
	if d.archiveTo != "" {
		args = append(args, "-XX:ArchiveClassesAtExit="+d.archiveTo)
	} else if _, err := os.Stat(d.archive()); err == nil {
		args = append(args, "-XX:SharedArchiveFile="+d.archive())
	}
	args = append(append(args, d.javaArgs()...), "kafka.Kafka", config)
	return exec.Command(d.java, args...)
}

// makeArchive runs one broker, has it load what the first seconds of every broker load,
// and keeps its classes as they lie in memory: later starts take about half as long.
func (d *dist) makeArchive() error {
	work := *d
	work.archiveTo = d.archive() + ".new"
	s, err := newState(Options{Brokers: 1, Version: d.version}, &work)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(context.Background(), readyMax)
	defer cancel()
	if err := s.up(ctx); err != nil {
		return err
	}
	if err := s.nodes[0].stop(); err != nil {
		return err
	}
	if err := os.Rename(work.archiveTo, d.archive()); err != nil {
		return fmt.Errorf("kafkatest: class archive: %w", err)
	}
	return nil
}

// firstLine returns the first line of a tool's output that says something.
func firstLine(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if s := strings.TrimSpace(line); s != "" && !strings.HasPrefix(s, "WARNING") {
			return s
		}
	}
	return "(no output)"
}
