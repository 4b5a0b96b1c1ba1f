//go:build compose

package composetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"vendorapi/internal/devclickhouse/libchdb"
	"vendorapi/loadtest/harness"
)

// composeModule is compose's pinned release. It is built from the Go proxy: Debian has
// version 1 only, which does not read our file.
const composeModule = "github.com/docker/compose/v2/cmd@v2.28.1"

// noImage are images that nothing stands in for; their services are left out.
var noImage = []string{"grafana"}

// docker is a daemon of this test's own: folders, socket, network, namespaces of processes
// and mounts. When this process dies, the kernel ends it and every container.
type docker struct {
	dir      string // holds everything, and is removed at the end
	module   string // the working tree under test
	checkout string // a copy of it, where commands run as a user would run them
	env      []string
	daemon   *exec.Cmd
	ended    chan struct{} // closed when the daemon has ended
	http     *http.Client  // of the daemon's API
	project  *types.Project
}

// command runs a program in the checkout and returns what it printed.
func (d *docker) command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = d.checkout, append(os.Environ(), d.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	if log, openErr := os.OpenFile(filepath.Join(d.dir, "commands.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); openErr == nil {
		fmt.Fprintf(log, "%s %s: %v\n%s%s\n", name, strings.Join(args, " "), err, &out, &complaints)
		log.Close()
	}

	if err != nil {
		said := out.String() + complaints.String()
		return out.String(), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, said[max(0, len(said)-3000):])
	}

	return out.String(), nil
}

// compose runs docker compose.
func (d *docker) compose(ctx context.Context, args ...string) (string, error) {
	return d.command(ctx, "docker", append([]string{"compose"}, args...)...)
}

// online is command in the machine's own network, that of the parent process: this one has
// a network of its own, so that the ports which docker-compose.yml publishes are free.
func (d *docker) online(ctx context.Context, name string, args ...string) (string, error) {
	network := fmt.Sprintf("--net=/proc/%d/ns/net", os.Getppid())
	return d.command(ctx, "nsenter", append([]string{network, "--", name}, args...)...)
}

// startLoopback makes 127.0.0.1 of a new network work, and refuses to run in a network
// that others use.
func startLoopback() error {
	interfaces, err := net.Interfaces()
	if err != nil || len(interfaces) != 1 {
		return fmt.Errorf("not in a network of its own, see Makefile: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)

	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}

	loopback.SetUint16(unix.IFF_UP)

	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, loopback)
}

// start starts the daemon. Without iptables, containers reach each other, and this
// machine by published ports, and nothing else.
func (d *docker) start(ctx context.Context) error {
	socket, log := filepath.Join(d.dir, "docker.sock"), filepath.Join(d.dir, "dockerd.log")
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	defer out.Close()

	// The new namespace of processes needs a /proc of its own; docker-init takes up
	// what containers leave.
	d.daemon = exec.Command("sh", "-ec", `mount --make-rprivate / && mount -t proc proc /proc && exec docker-init -- dockerd "$@"`, "dockerd",
		"--data-root", filepath.Join(d.dir, "data"), "--exec-root", filepath.Join(d.dir, "exec"), "--pidfile", filepath.Join(d.dir, "docker.pid"),
		"-H", "unix://"+socket, "--iptables=false", "--ip6tables=false", "--bridge=none",
		"--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", "/"+filepath.Base(d.dir))

	d.daemon.Stdout, d.daemon.Stderr = out, out
	d.daemon.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Setsid: true, Pdeathsig: syscall.SIGKILL,
	}
	d.ended = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the death signal is tied to this thread
		err := d.daemon.Start()
		started <- err
		if err == nil {
			_ = d.daemon.Wait() // how it ends is in its log
			close(d.ended)
		}
	}()

	if err := <-started; err != nil {
		return fmt.Errorf("start dockerd: %w", err)
	}

	d.env = append(d.env, "DOCKER_HOST=unix://"+socket)
	d.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	err = harness.Await(ctx, "dockerd", time.Minute, 100*time.Millisecond, func() (bool, error) {
		select {
		case <-d.ended:
			return false, errors.New("dockerd ended")
		default:
			return d.api(ctx, "/info", nil) == nil, nil
		}
	})

	if err != nil {
		said, _ := os.ReadFile(log)
		return fmt.Errorf("%w\n%s", err, said[max(0, len(said)-3000):])
	}

	return nil
}

// stop ends the daemon; what it does not end, the kernel does with its namespace.
func (d *docker) stop() {
	if d.ended == nil || d.daemon.Process == nil {
		return
	}

	_ = d.daemon.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		_ = d.daemon.Process.Kill()
		<-d.ended
	}
}

// removeGroups removes the control groups that the daemon made for its containers.
func (d *docker) removeGroups() error {
	var groups []string
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} { // version 2, and each controller of version 1
		found, _ := filepath.Glob(filepath.Join(top, filepath.Base(d.dir)))
		groups = append(groups, found...)
	}

	var failed error
	for _, top := range groups {
		var below []string
		_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				below = append(below, path)
			}
			return nil
		})

		for _, group := range slices.Backward(below) {
			failed = errors.Join(failed, os.Remove(group))
		}
	}

	return failed
}

// api reads from the daemon.
func (d *docker) api(ctx context.Context, path string, dst any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker"+path, nil)
	if err != nil {
		return err
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return fmt.Errorf("docker: %s: %w", path, fs.ErrNotExist)
	default:
		return fmt.Errorf("docker answers %s with %d", path, resp.StatusCode)
	}

	if dst == nil {
		return nil
	}

	return json.NewDecoder(resp.Body).Decode(dst)
}

// installCompose builds compose into the cache, once, and makes it a plugin of docker.
func (d *docker) installCompose(ctx context.Context) error {
	cache, err := cacheDir("compose-" + composeModule[strings.LastIndex(composeModule, "@")+1:])
	if err != nil {
		return err
	}

	built := filepath.Join(cache, "cmd")
	if _, err := os.Stat(built); err != nil {
		say("building %s, once: about three minutes", composeModule)
		if _, err := d.online(ctx, "env", "GOBIN="+cache, "CGO_ENABLED=0", "go", "install", composeModule); err != nil {
			return err
		}
	}

	plugins := filepath.Join(d.dir, "config", "cli-plugins")
	if err := os.MkdirAll(plugins, 0o700); err != nil {
		return err
	}

	return os.Symlink(built, filepath.Join(plugins, "docker-compose"))
}

func cacheDir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "vendorapi", name)
	return dir, os.MkdirAll(dir, 0o755)
}

// load reads docker-compose.yml with the keys of .env, all profiles included.
func (d *docker) load(ctx context.Context) error {
	options, err := cli.NewProjectOptions(nil, cli.WithWorkingDirectory(d.checkout), cli.WithProfiles([]string{"*"}),
		cli.WithEnvFiles(), cli.WithDotEnv, cli.WithDefaultConfigPath)
	if err != nil {
		return err
	}
	d.project, err = options.LoadProject(ctx)
	if err != nil {
		return err
	}

	for name, s := range d.project.Services {
		if slices.Contains(noImage, imageName(s.Image)) {
			say("left out: %s, for %s there is no package", name, s.Image)
			delete(d.project.Services, name)
		}
	}

	return nil
}

// imageName is redis of docker.io/library/redis:7@sha256:….
func imageName(image string) string {
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}

var from = regexp.MustCompile(`(?m)^FROM ([^ \n]+)`)

// makeImages makes the images that the project builds on or runs, under the tags that it
// names, each from images/<name>.Dockerfile.
func (d *docker) makeImages(ctx context.Context) error {
	var wanted []string
	for _, s := range d.project.Services {
		if s.Build == nil {
			wanted = append(wanted, s.Image)
			continue
		}

		file, err := os.ReadFile(filepath.Join(s.Build.Context, s.Build.Dockerfile))
		if err != nil {
			return err
		}

		for _, m := range from.FindAllStringSubmatch(string(file), -1) {
			wanted = append(wanted, m[1])
		}
	}

	slices.Sort(wanted)
	wanted = slices.DeleteFunc(slices.Compact(wanted), func(image string) bool { return image == "scratch" })
	images := filepath.Join(d.module, "loadtest", "composetest", "images")
	root, err := d.packages(ctx, images)
	if err != nil {
		return err
	}
	if _, err := d.command(ctx, "docker", "import", root, "packages"); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	for _, image := range wanted {
		group.Go(func() error {
			name := imageName(image)
			if name == "golang" {
				return d.makeToolchain(ctx, images, root, image)
			}

			file := filepath.Join(images, name+".Dockerfile")
			if _, err := os.Stat(file); err != nil {
				return fmt.Errorf("%s cannot be fetched here, and no loadtest/composetest/images/%s.Dockerfile makes it", image, name)
			}

			// The old builder needs no plugin.
			_, err := d.command(ctx, "env", "DOCKER_BUILDKIT=0", "docker", "build", "--network", "none", "-t", image, "-f", file, images)
			if name == "clickhouse-server" {
				say("a stand-in for %s: the engine of internal/devclickhouse, libchdb %s", image, libchdb.Version)
			}

			return err
		})
	}

	return group.Wait()
}

// makeToolchain makes the image of the machine's Go, which fetches modules from within.
func (d *docker) makeToolchain(ctx context.Context, images, root, image string) error {
	_, err := d.online(ctx, "sh", "-ec", `mkdir "$3"; sh "$1/golang.sh" "$2" "$3" >"$3.tar"; docker import --change "ENV PATH=/usr/local/go/bin:/bin" \
		--change "ENV HOME=/root" --change "ENV GOTOOLCHAIN=local" --change "ENV GOPROXY=file:///modules" --change "ENV GOSUMDB=off" "$3.tar" "$4"`,
		"sh", images, root, filepath.Join(d.dir, "golang"), image)
	return err
}

// overrides are what the stand-ins need beside docker-compose.yml: builds without a
// network, of which the daemon has none, and the engine's program and library.
func (d *docker) overrides(ctx context.Context) error {
	engine := filepath.Join(d.dir, "devclickhouse")
	if _, err := d.online(ctx, "sh", "-ec", `CGO_ENABLED=0 go build -o "$1" ./internal/devclickhouse; "$1" install`, "sh", engine); err != nil {
		return err
	}

	library, err := libchdb.Find()
	if err != nil {
		return err
	}

	var text strings.Builder
	text.WriteString("services:\n")
	for name, service := range d.project.Services {
		if service.Build != nil {
			fmt.Fprintf(&text, "  %s: {build: {network: none}}\n", name)
		}
	}

	fmt.Fprintf(&text, "  clickhouse: {volumes: [%q, %q]}\n", engine+":/opt/devclickhouse:ro", library+":/opt/libchdb.so:ro")
	// haproxy wants two descriptors and a little for each of its maxconn.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}

	if limit.Max < 40_000 {
		say("this machine allows a process %d descriptors: the balancer is started with fewer connections", limit.Max)
		fmt.Fprintf(&text, "  balancer: {command: [-f, /usr/local/etc/haproxy/haproxy.cfg, -n, %q]}\n", strconv.FormatUint(limit.Max/4, 10))
	}

	return os.WriteFile(filepath.Join(d.dir, "overrides.yml"), []byte(text.String()), 0o600)
}

// packages makes an archive of a small Debian with all packages that the images need. It
// is kept in the cache for a day: security updates must come.
func (d *docker) packages(ctx context.Context, images string) (string, error) {
	list, err := os.ReadFile(filepath.Join(images, "packages"))
	if err != nil {
		return "", err
	}
	cache, err := cacheDir("compose-test")
	if err != nil {
		return "", err
	}

	root := filepath.Join(cache, fmt.Sprintf("%.8x.tar", sha256.Sum256(list)))
	if info, err := os.Stat(root); err == nil && time.Since(info.ModTime()) < 24*time.Hour {
		return root, nil
	}

	began := time.Now()
	partial := filepath.Join(d.dir, "packages.tar")
	// wget is what public images of Alpine have; what is excluded, nobody uses here.
	_, err = d.online(ctx, "mmdebstrap", "--variant=essential", "--include="+strings.Join(strings.Fields(string(list)), ","),
		"--dpkgopt=path-exclude=/usr/share/javascript/*", "--dpkgopt=path-exclude=/usr/share/fonts/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/bin/promtool", "--dpkgopt=path-exclude=/usr/bin/amtool",
		`--customize-hook=ln -s /bin/busybox "$1/usr/bin/wget"`, "bookworm", partial, filepath.Join(images, "sources.list"))

	if err == nil {
		_, err = d.command(ctx, "mv", partial, root)
	}

	say("fetched Debian's packages in %.0f s", time.Since(began).Seconds())

	return root, err
}

// container is what the daemon says of one.
type container struct {
	ID           string `json:"Id"`
	Service      string
	Image        string
	RestartCount int
	State        struct {
		Status    string
		StartedAt time.Time
		Health    struct{ Status string }
	}
	HostConfig struct {
		Memory         int64
		ReadonlyRootfs bool
		RestartPolicy  struct{ Name string }
		LogConfig      struct {
			Type   string
			Config map[string]string
		}
	}
	Config struct{ Image string } // by name
}

// containers are the services' containers, by service. One that is being made or removed at this moment
// may be left out.
func (d *docker) containers(ctx context.Context) (map[string]*container, error) {
	var list []struct {
		ID     string `json:"Id"`
		Labels map[string]string
	}

	if err := d.api(ctx, "/containers/json?all=1&filters="+url.QueryEscape(`{"label":["com.docker.compose.oneoff=False"]}`), &list); err != nil {
		return nil, err
	}

	all := map[string]*container{}
	for _, entry := range list {
		c := &container{Service: entry.Labels["com.docker.compose.service"]}
		err := d.api(ctx, "/containers/"+entry.ID+"/json", c)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			all[c.Service] = c
		}
	}

	return all, nil
}

// mainProcess is a container's first process as this machine numbers it, 0 when it
// has none: the daemon's own numbers are of its namespace.
func mainProcess(id string) int {
	all, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, name := range all {
		groups, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(groups, []byte(id)) {
			continue
		}
		if ids := strings.Fields(status(filepath.Dir(name), "NSpid")); len(ids) > 1 && ids[len(ids)-1] == "1" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name))) // the pattern is of digits
			return pid
		}
	}

	return 0
}

// status is a field of a process's status.
func status(process, field string) string {
	content, _ := os.ReadFile(filepath.Join(process, "status")) // a process that has gone has none
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// memory is what the service's container uses, without the cache of files, and its limit.
func (d *docker) memory(ctx context.Context, c *container) (used, limit int64, err error) {
	var stats struct {
		MemoryStats struct {
			Usage, Limit int64
			Stats        map[string]int64
		} `json:"memory_stats"`
	}

	err = d.api(ctx, "/containers/"+c.ID+"/stats?stream=false&one-shot=1", &stats)
	m := stats.MemoryStats
	return m.Usage - cmp.Or(m.Stats["total_inactive_file"], m.Stats["inactive_file"]), m.Limit, err
}

// atOnce calls do for each service's container at the same time.
func (d *docker) atOnce(ctx context.Context, do func(ctx context.Context, c *container) error) error {
	all, err := d.containers(ctx)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	for name, c := range all {
		group.Go(func() error {
			if err := do(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}

	return group.Wait()
}

// leftOver are processes and mounts of this machine that belong to the folder.
func leftOver(dir string) (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		if line, err := os.ReadFile(name); err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, "process "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}

	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			found = append(found, "mount "+line)
		}
	}

	return found
}
