package chromium

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
)

// Download does what begins a download (a click on a link) and returns the path
// of the file, which lies in dir under the name that the server gave it.
func (t *Tab) Download(dir string, begin func() error) (string, error) {
	events := true
	_, err := chromedp.CallBrowser(t.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir, EventsEnabled: &events,
		BrowserContextID: chromedp.FromContext(t.ctx).BrowserContextID,
	})
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	name, done := make(chan string, 8), make(chan error, 8)
	err = chromedp.ListenBrowser(ctx, func(event any) {
		switch e := event.(type) {
		case *browser.EventDownloadWillBegin:
			name <- e.SuggestedFilename
		case *browser.EventDownloadProgress:
			switch e.State {
			case browser.DownloadProgressStateCompleted:
				done <- nil
			case browser.DownloadProgressStateCanceled:
				done <- fmt.Errorf("the download was broken off")
			default:
			}
		}
	})
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	if err := begin(); err != nil {
		return "", err
	}
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	path := filepath.Join(dir, filepath.Base(<-name))
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	return path, nil
}
