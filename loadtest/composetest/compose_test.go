//go:build compose

// Package composetest runs docker-compose.yml as a user would: built, started, used,
// killed, replaced, restored and removed, under a Docker daemon of its own, on a machine
// that cannot fetch images. The images of others come from Debian's packages under the
// names and tags that docker-compose.yml and the Dockerfile have (images/); ClickHouse's
// is a stand-in around internal/devclickhouse, and Grafana is left out.
package composetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/commands"
	"vendorapi/loadtest/day"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

var began = time.Now()

// say prints a line with the seconds since the beginning.
func say(format string, args ...any) {
	fmt.Printf("[%4.0f s] %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}

func TestCompose_WorksAsAUserRunsIt(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	dir, err := os.MkdirTemp("", "compose-test-")
	if err != nil {
		t.Fatal(err)
	}

	d := &docker{dir: dir, checkout: filepath.Join(dir, "checkout"), env: []string{
		"DOCKER_CONFIG=" + filepath.Join(dir, "config"), "COURIER_STEP=300ms", "COMPOSE_FILE=docker-compose.yml:../overrides.yml",
	}}
	err = d.run(ctx)
	if err != nil && ctx.Err() == nil {
		d.complain()
	}

	if err := errors.Join(err, d.remove()); err != nil {
		t.Fatal(err)
	}

	say("compose-test: passed, nothing is left")
}

func (d *docker) run(ctx context.Context) (err error) {
	if os.Getuid() != 0 {
		return errors.New("a Docker daemon needs root")
	}
	d.module, err = stack.ModuleDir()
	if err != nil {
		return err
	}

	s := &story{docker: d, mux: http.NewServeMux(), env: map[string]string{}}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"a Docker daemon, compose, a copy of the working tree, make env", s.prepare},
		{"images of others", d.makeImages},
		{"docker compose build, without a network", func(ctx context.Context) error { return s.build(ctx, "1.0.0", "first") }},
		{"docker compose up", s.up},
		{"rights and limits of the containers", s.hardened},
		{"TLS and HTTP/2, with the certificate of `make env CERTIFICATE=yes`", s.secure},
		{"the walk of README.md", s.walk},
		{"a day of a vendor, balanced with the reports", s.day},
		{"the commands of runbook.md", s.runbook},
		{"a file that was changed, a key, alerts, stopped gateways (operations.md, keys.md)", s.operate},
		{"kill -9 of a gateway, a worker, ClickHouse, reporting, the balancer and Redis while orders come", s.kills},
		{"a second build, one container at a time, while orders come (operations.md, Upgrading)", s.replace},
		{"a backup, the restore on this host and as on a new one (operations.md)", s.restore},
		{"docker compose down -v", s.down},
	} {
		say("%s ...", step.name)
		since := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		say("%s: done in %.1f s", step.name, time.Since(since).Seconds())
	}

	s.print()

	return nil
}

// complain prints what helps to find out why it failed.
func (d *docker) complain() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{{"ps", "-a"}, {"logs", "--tail", "15"}} {
		said, err := d.compose(ctx, args...)
		fmt.Println(said, err)
	}
}

// remove ends what is still there, and makes sure that nothing is.
func (d *docker) remove() error {
	d.stop()
	if err := errors.Join(os.RemoveAll(d.dir), d.removeGroups()); err != nil {
		return fmt.Errorf("%w; left: %q", err, leftOver(d.dir))
	}
	if left := leftOver(d.dir); len(left) > 0 {
		return fmt.Errorf("left: %q", left)
	}
	return nil
}

// story is what happens, and what of it is needed later.
type story struct {
	*docker
	mux     *http.ServeMux // receivers of webhooks
	env     map[string]string
	demo    stack.Demo
	apis    *stack.APIs
	load    *load
	memory  map[string]string
	sizes   map[string]string
	started map[string]time.Duration
}

func (s *story) prepare(ctx context.Context) error {
	if err := startLoopback(); err != nil {
		return err
	}
	if err := os.Mkdir(s.checkout, 0o755); err != nil {
		return err
	}

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.installCompose(groupCtx) })
	group.Go(func() error { return s.start(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}

	_, err := s.command(ctx, "sh", "-ec", `cd "$1"; git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$2"
		cd "$2"; make -s env ENVIRONMENT=sandbox CERTIFICATE=yes
		printf "ADMIN_KEYS='# of operators\nayse:sha256:%s\n'\n" "$(printf %s "$3" | sha256sum | cut -d ' ' -f 1)" >> .env`, "sh", s.module, s.checkout, operatorKey)
	if err != nil {
		return err
	}
	if err := s.readEnv(); err != nil {
		return err
	}
	if err := s.docker.load(ctx); err != nil {
		return err
	}

	return s.overrides(ctx)
}

// readEnv reads .env.
func (s *story) readEnv() error {
	content, err := os.ReadFile(filepath.Join(s.checkout, ".env"))
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		s.env[name] = value
	}
	return err
}

// build makes a release, and names it in .env.
func (s *story) build(ctx context.Context, version, revision string) error {
	f, err := os.OpenFile(filepath.Join(s.checkout, ".env"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(f, "VERSION=%s\nREVISION=%s\n", version, revision)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}

	_, err = s.compose(ctx, "build")

	return err
}

// up starts everything but what has no image.
func (s *story) up(ctx context.Context) error {
	s.started = map[string]time.Duration{}
	started := make(chan error, 1)
	go func() {
		_, err := s.compose(ctx, append([]string{"--profile", "*", "up", "-d", "--wait"}, s.project.ServiceNames()...)...)
		started <- err
	}()

	var all map[string]*container
	err := harness.Await(ctx, "healthy containers", 5*time.Minute, 200*time.Millisecond, func() (done bool, err error) {
		select {
		case err := <-started:
			if err != nil {
				return false, err
			}
			done = true
		default:
		}

		all, err = s.containers(ctx)
		if err != nil {
			return false, err
		}

		for name, c := range all {
			if s.started[name] == 0 && c.State.Health.Status == "healthy" {
				s.started[name] = time.Since(c.State.StartedAt)
			}
		}

		return done, nil
	})
	if err != nil {
		return err
	}

	if len(all) != len(s.project.Services) {
		return fmt.Errorf("%d containers, %d services", len(all), len(s.project.Services))
	}

	return s.open(ctx)
}

// open makes a fleet, and sends webhooks to this process, until the end.
func (s *story) open(ctx context.Context) error {
	s.demo = stack.Demo{
		BaseURL: "http://127.0.0.1:8080", OpsURL: "http://127.0.0.1:8081", PanelURL: "http://127.0.0.1:8090",
		AdminKey: s.env["ADMIN_KEY"], ReportsToken: s.env["REPORTS_TOKEN"],
	}

	coverage, err := os.ReadFile(filepath.Join(s.module, "internal", "stack", "coverage.geojson"))
	if err != nil {
		return err
	}

	admin := client.New(s.demo.OpsURL+"/api/admin/v1", 2)
	admin.Bearer = s.demo.AdminKey
	if err := admin.Call(ctx, http.MethodPost, "/fleets", map[string]any{
		"name": "Demo Kurye", "subRegion": "Demo Bölgesi", "avgDeliveryMinutes": 25, "coverage": json.RawMessage(coverage),
	}, &s.demo.Fleet); err != nil {
		return err
	}

	s.apis, err = s.demo.Connect(ctx, client.New("", 16))
	if err != nil {
		return err
	}

	go s.receivers(ctx, s.mux)

	return nil
}

// hardened compares what the kernel holds the containers to with docker-compose.yml.
func (s *story) hardened(ctx context.Context) error {
	return s.atOnce(ctx, func(ctx context.Context, c *container) error {
		want, process := s.project.Services[c.Service], fmt.Sprintf("/proc/%d", mainProcess(c.ID))
		_, limit, err := s.docker.memory(ctx, c)
		if err != nil {
			return err
		}

		if want.MemLimit == 0 || limit != int64(want.MemLimit) {
			return fmt.Errorf("its memory is limited to %d bytes, not %d", limit, want.MemLimit)
		}
		if c.HostConfig.RestartPolicy.Name != want.Restart || want.Restart == "" {
			return fmt.Errorf("it restarts %q", c.HostConfig.RestartPolicy.Name)
		}
		if log := c.HostConfig.LogConfig; log.Config["max-size"] == "" || log.Config["max-file"] == "" {
			return fmt.Errorf("its log is not rotated: %v", log)
		}
		if privileges := status(process, "NoNewPrivs"); privileges != "1" {
			return fmt.Errorf("it may gain privileges: %q", privileges)
		}
		if none := strings.Repeat("0", 16); slices.Contains(want.CapDrop, "ALL") && (status(process, "CapEff") != none || status(process, "CapBnd") != none) {
			return fmt.Errorf("it has capabilities: %s of %s", status(process, "CapEff"), status(process, "CapBnd"))
		}
		if uid, _, _ := strings.Cut(status(process, "Uid"), "\t"); uid == "0" {
			return errors.New("it runs as root")
		}

		mounts, err := os.ReadFile(process + "/mountinfo")
		if err != nil {
			return err
		}
		if readOnly := regexp.MustCompile(`(?m)^\d+ \d+ \S+ \S+ / ro,`).Match(mounts); readOnly != want.ReadOnly {
			return fmt.Errorf("its root is read-only: %v, not %v", readOnly, want.ReadOnly)
		}

		return nil
	})
}

// block is the shell block of a document that has the given text, without its indent.
func (s *story) block(document, text string) (string, error) {
	content, err := os.ReadFile(filepath.Join(s.checkout, document))
	if err != nil {
		return "", err
	}

	for _, b := range regexp.MustCompile("(?s)```sh\n(.*?)```|(?:\n    [^\n]*)(?:\n+    [^\n]*)*").FindAllStringSubmatch(string(content), -1) {
		if found := b[0] + b[1]; strings.Contains(found, text) {
			if b[1] != "" {
				return b[1], nil
			}
			return strings.ReplaceAll(b[0], "\n    ", "\n"), nil
		}
	}

	return "", fmt.Errorf("%s has no block with %q", document, text)
}

// shell runs what a document says, with some texts replaced by those of this run.
func (s *story) shell(ctx context.Context, document, text, before string, replace ...string) error {
	script, err := s.block(document, text)
	if err != nil {
		return err
	}

	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(script, replace[i]) {
			return fmt.Errorf("%s: nothing there is %q", document, replace[i])
		}
	}

	_, err = s.command(ctx, "sh", "-ec", before+"\n"+strings.NewReplacer(replace...).Replace(script))

	return err
}

// operatorKey is an operator's own key of the admin API.
const operatorKey = "adm_ayses-own-key"

// secure asks each frontend of the balancer, that of the admin API with an operator's own key.
func (s *story) secure(ctx context.Context) error {
	certificate, err := os.ReadFile(filepath.Join(s.checkout, ".certificate.pem"))
	if err != nil {
		return err
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	secure := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer secure.CloseIdleConnections()
	for page, status := range map[string]int{"8443/docs": 200, "8446/docs": 200, "8441/api/admin/v1/fleets": 200, "8490/login": 200, "8491/track/none": 404} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost:"+page, nil)
		if err != nil {
			return err
		}

		req.Header.Set("Authorization", "Bearer "+operatorKey)
		resp, err := secure.Do(req)
		if err != nil {
			return err
		}

		resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != status {
			return fmt.Errorf("%s answers %d with %s", req.URL, resp.StatusCode, resp.Proto)
		}
	}

	return nil
}

// walk runs the commands of README.md, with the environment that `make run` would give them.
func (s *story) walk(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	v, err := s.apis.OpenAccount(ctx, "Walk", nil)
	if err != nil {
		return err
	}
	v.WebhookSecret, err = v.SetWebhook(ctx, "http://"+receiverAddr+"/walk")
	if err != nil {
		return err
	}

	data := filepath.Join(s.dir, "walk")
	if err := os.MkdirAll(filepath.Join(data, "logs"), 0o755); err != nil {
		return err
	}

	log, err := os.Create(filepath.Join(data, "logs", "receive.log"))
	if err != nil {
		return err
	}
	defer log.Close()

	hook, err := receiver.New(receiver.Options{Secrets: []string{v.WebhookSecret}, Seen: func(e receiver.Event, _ bool) { fmt.Fprintln(log, e) }})
	if err != nil {
		return err
	}

	s.mux.Handle("/walk", hook)
	if err := os.WriteFile(filepath.Join(data, "demo.env"), fmt.Appendf(nil, "BASE_URL=%s\nCLIENT_ID=%s\nCLIENT_SECRET=%s\nFLEET_ID=%s\n",
		s.demo.BaseURL, v.ClientID, v.ClientSecret, s.demo.Fleet.FleetID), 0o600); err != nil {
		return err
	}

	return s.shell(ctx, "README.md", "A-1001", "export DATA_DIR="+data)
}

func (s *story) day(ctx context.Context) error {
	v, err := s.apis.OpenAccount(ctx, "Day", nil)
	if err != nil {
		return err
	}

	demo := s.demo
	demo.Account = v.DemoAccount
	demo.Webhook.Secret, err = v.SetWebhook(ctx, "http://"+receiverAddr+"/day")
	if err != nil {
		return err
	}

	d, err := day.New(day.Options{Demo: demo, Orders: 150})
	if err != nil {
		return err
	}

	s.mux.Handle("/day", d)
	if err := d.Run(ctx, os.Stdout); err != nil {
		return err
	}

	say("150 orders of every kind: answers, webhooks, histories and the reports agree")

	return s.download(ctx)
}

// runbook runs the commands of runbook.md as they stand, each in a shell that has sourced runbook.sh, one after
// the other.
func (s *story) runbook(ctx context.Context) error {
	runbook, err := commands.ReadRunbook()
	if err != nil {
		return err
	}

	var failed error
	ran := 0
	for _, c := range runbook {
		if c.IsByHand() {
			continue
		}

		script := commands.Source("compose") + c.Line
		out, err := s.command(ctx, "sh", "-c", "exec 2>&1\n"+script)
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			err = ended // without the script
		}

		failed = errors.Join(failed, c.CheckOutcome(out, err))
		ran++
	}

	say("%d of %d commands were run", ran, len(runbook))
	if ran < commands.RunWithCompose {
		failed = errors.Join(failed, fmt.Errorf("%d commands were run, want %d", ran, commands.RunWithCompose))
	}

	return failed
}

// download gets a report that is composed in a file, for which a program has one folder.
func (s *story) download(ctx context.Context) error {
	today := time.Now().In(delivery.Istanbul).Format(time.DateOnly)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.demo.PanelURL+"/reports/order-ledger.xlsx?from="+today+"&to="+today, nil)
	if err != nil {
		return err
	}

	req.Header.Set("Authorization", "Bearer "+s.demo.ReportsToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	content, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(content), "PK") {
		return fmt.Errorf("the XLSX file was answered %d with %d bytes: %w", resp.StatusCode, len(content), err)
	}

	return nil
}

// operate runs what the operators' documents tell beside the runbook, upgrades and backups.
func (s *story) operate(ctx context.Context) error {
	const document = "docs/operations.md"
	for _, block := range []struct{ document, text string }{
		{document, "for service in gateway-1 gateway-2; do"},
		{"docs/keys.md", "docker compose up -d --no-deps --wait gateway-1"},
		{document, "docker compose stop gateway-1 gateway-2"},
	} {
		if err := s.shell(ctx, block.document, block.text, ""); err != nil {
			return err
		}
	}

	// The files with the receivers of alerts, without sudo, and the log of alerts, without waiting
	// for more.
	err := s.shell(ctx, document, "docker compose --profile observe up -d --force-recreate alertmanager", "", "sudo chgrp 65534 *", "chgrp 65534 *")
	if err != nil {
		return err
	}

	withImages := strings.Join(s.project.ServiceNames(), " ")

	return s.shell(ctx, document, "docker compose logs -f alerts", "", "up -d --wait", "up -d --wait "+withImages, "logs -f alerts", "logs alerts")
}

// kills ends the first process of a container as a crash does: Docker starts it again.
func (s *story) kills(ctx context.Context) (err error) {
	s.load, err = openLoad(ctx, s.apis, s.mux)
	if err != nil {
		return err
	}

	err = s.load.during(ctx, func(ctx context.Context) error {
		for _, name := range []string{"gateway-1", "worker-1", "redis", "clickhouse", "reporting", "balancer"} {
			if err := s.kill(ctx, name); err != nil {
				return fmt.Errorf("kill %s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	say("%s", s.load.report())
	if err := s.load.delivered(ctx); err != nil {
		return err
	}

	return s.reconcile(ctx)
}

func (s *story) kill(ctx context.Context, name string) error {
	if err := harness.Sleep(ctx, 3*time.Second); err != nil { // orders come meanwhile
		return err
	}

	all, err := s.containers(ctx)
	if err != nil {
		return err
	}

	pid := mainProcess(all[name].ID)
	since := time.Now()
	if pid == 0 {
		return errors.New("it does not run")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}

	restarts := all[name].RestartCount
	err = harness.Await(ctx, "its restart", 2*time.Minute, 100*time.Millisecond, func() (bool, error) {
		all, err := s.containers(ctx)
		return err == nil && all[name].RestartCount > restarts && all[name].State.Health.Status == "healthy", err
	})

	if err == nil {
		say("%s: killed, restarted by Docker and healthy after %.1f s", name, time.Since(since).Seconds())
	}

	return err
}

// reconcile waits until ClickHouse has what Redis has, order by order.
func (s *story) reconcile(ctx context.Context) error {
	_, err := s.compose(ctx, "exec", "-T", "reporting", "/reporting", "reconcile")
	if err == nil {
		say("reporting reconcile: Redis and ClickHouse agree")
	}
	return err
}

// replace upgrades to a second build as operations.md says.
func (s *story) replace(ctx context.Context) error {
	// Built beforehand, so that the orders do not wait for a compiler.
	if err := s.build(ctx, "1.1.0", "second"); err != nil {
		return err
	}

	err := s.load.during(ctx, func(ctx context.Context) error {
		return s.shell(ctx, "docs/operations.md", "git checkout $REVISION && docker compose build", "",
			"REVISION=…", "REVISION=second", "git checkout $REVISION && docker", "docker")
	})
	if err != nil {
		return err
	}

	say("%s", s.load.report())
	for name, port := range map[string]string{"gateway-1": "8181", "gateway-2": "8281", "worker-1": "8082", "worker-2": "8092", "reporting": "8083"} {
		resp, err := http.Get("http://127.0.0.1:" + port + "/metrics")
		if err != nil {
			return err
		}

		metrics, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(metrics), `revision="second",version="1.1.0"`) {
			return fmt.Errorf("%s is not of the second build: %w", name, err)
		}
	}

	if err := s.load.delivered(ctx); err != nil {
		return err
	}
	if err := s.measure(ctx); err != nil {
		return err
	}

	return s.reconcile(ctx)
}

// restore takes a backup, and restores it on this host, beside what is there, then as on a new one.
func (s *story) restore(ctx context.Context) error {
	const document, inBackup = "docs/operations.md", "as_backup backup"
	if err := s.shell(ctx, document, inBackup, ""); err != nil {
		return err
	}

	functions, err := s.block(document, inBackup)
	if err != nil {
		return err
	}

	functions, _, _ = strings.Cut(functions, inBackup)
	said, err := s.command(ctx, "sh", "-ec", functions+"in_backups sh -c 'cd /backups && ls -d *Z'")
	if err != nil {
		return err
	}

	made := strings.Fields(said)
	if len(made) != 2 { // the service made one when it was started
		return fmt.Errorf("the volume has the backups %q", made)
	}
	if err := s.load.createUnsaved(ctx); err != nil {
		return err
	}

	script, err := s.block(document, "RENAME DATABASE")
	if err != nil {
		return err
	}

	script = functions + regexp.MustCompile(`B=\S+`).ReplaceAllString(script, "B=/backups/"+slices.Max(made))
	if _, err := s.command(ctx, "sh", "-ec", script); err != nil {
		return err
	}
	if err := s.load.known(ctx); err != nil {
		return err
	}
	if err := s.load.unsavedGone(ctx); err != nil {
		return err
	}

	say("all %d orders are there on this host, the %d from after the backup are not; now as on a new one", len(s.load.orders), len(s.load.unsaved))

	drill, err := s.block(document, "make restore DRILL=yes FROM=drill")
	if err != nil {
		return err
	}
	if _, err := s.command(ctx, "sh", "-ec", functions+drill); err != nil {
		return err
	}

	say("make restore DRILL=yes of a backup that was copied out: all is well")

	// What its owner has kept elsewhere: .env, and the folder of backups as the volume has it.
	backups := filepath.Join(s.dir, "backups")
	if _, err := s.command(ctx, "sh", "-ec", functions+`cp .env "$1.env"; mkdir "$1"; in_backups tar -C /backups -c . | tar -C "$1" -x
		docker compose --profile "*" down -v; rm .env
		cp "$1.env" .env; echo "BACKUPS=$1" >> .env`, "sh", backups); err != nil {
		return err
	}

	script = regexp.MustCompile(`(?s)docker compose exec -T clickhouse sh -c.*?RENAME[^\n]*\n`).ReplaceAllString(script, "")
	if _, err := s.command(ctx, "sh", "-ec", script); err != nil {
		return err
	}
	if err := s.readEnv(); err != nil {
		return err
	}
	if err := s.load.login(ctx, s.apis.Vendor); err != nil {
		return err
	}
	if err := s.load.known(ctx); err != nil {
		return err
	}

	say("all %d orders are there", len(s.load.orders))
	// And it goes on.
	if err := s.load.during(ctx, func(ctx context.Context) error { return harness.Sleep(ctx, 3*time.Second) }); err != nil {
		return err
	}

	say("%s", s.load.report())

	return s.load.delivered(ctx)
}

// down removes everything, and shows it.
func (s *story) down(ctx context.Context) error {
	if _, err := s.compose(ctx, "--profile", "*", "down", "-v"); err != nil {
		return err
	}

	for _, list := range [][]string{{"ps", "-aq"}, {"volume", "ls", "-q"}, {"network", "ls", "-q", "--filter", "type=custom"}} {
		said, err := s.command(ctx, "docker", list...)
		if err != nil {
			return err
		}
		if said != "" {
			return fmt.Errorf("docker %s: %s", strings.Join(list, " "), said)
		}
	}

	return nil
}

// measure notes sizes and memory for the table.
func (s *story) measure(ctx context.Context) error {
	s.memory, s.sizes = map[string]string{}, map[string]string{}
	var mu sync.Mutex
	return s.atOnce(ctx, func(ctx context.Context, c *container) error {
		used, limit, err := s.docker.memory(ctx, c)
		if err != nil {
			return err
		}

		var image struct{ Size int64 }
		if err := s.api(ctx, "/images/"+c.Image+"/json", &image); err != nil {
			return err
		}

		mu.Lock()
		defer mu.Unlock()
		s.memory[c.Service] = fmt.Sprintf("%d of %d MiB", used>>20, limit>>20)
		s.sizes[c.Service] = fmt.Sprintf("%s\t%d MB", c.Config.Image, image.Size/1e6)

		return nil
	})
}

func (s *story) print() {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\ncontainer\timage\tsize\thealthy after\tmemory")
	names := s.project.ServiceNames()
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(table, "%s\t%s\t%.1f s\t%s\n", name, s.sizes[name], s.started[name].Seconds(), s.memory[name])
	}

	_ = table.Flush() // a terminal that is gone changes nothing
	fmt.Println("sizes of images but vendorapi are those of this test's own, which have all of Debian's packages in them")
}
