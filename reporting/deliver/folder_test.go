package deliver

import (
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"path"
	"slices"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
)

const fsyncExtension = "fsync@openssh.com"

// syncing gives pkg/sftp's server the extension of OpenSSH that writes a file to the disk, and notes the
// extensions that are asked for.
type syncing struct {
	ssh.Channel
	requests  bytes.Buffer // for the server
	isGreeted bool         // the server has sent its first packet, in which it names its extensions

	mu    *sync.Mutex
	asked *[]string
}

func (s *syncing) Write(answer []byte) (int, error) {
	if s.isGreeted {
		return s.Channel.Write(answer)
	}

	s.isGreeted = true
	greeting := slices.Clone(answer)
	for _, text := range []string{fsyncExtension, "1"} {
		greeting = binary.BigEndian.AppendUint32(greeting, uint32(len(text)))
		greeting = append(greeting, text...)
	}

	binary.BigEndian.PutUint32(greeting, uint32(len(greeting)-4))
	_, err := s.Channel.Write(greeting)

	return len(answer), err
}

func (s *syncing) Read(b []byte) (int, error) {
	if s.requests.Len() == 0 {
		if err := s.readRequest(); err != nil {
			return 0, err
		}
	}
	return s.requests.Read(b)
}

// readRequest reads a request: its length, its kind, its number, and the rest. One to write a file to the disk goes on
// to the server as one that sets no attribute of the file.
func (s *syncing) readRequest() error {
	const extended, setAttributes = 200, 10
	var length [4]byte
	if _, err := io.ReadFull(s.Channel, length[:]); err != nil {
		return err
	}

	request := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(s.Channel, request); err != nil {
		return err
	}

	if request[0] == extended {
		size := binary.BigEndian.Uint32(request[5:])
		name, rest := string(request[9:9+size]), request[9+size:]
		s.mu.Lock()
		*s.asked = append(*s.asked, name)
		s.mu.Unlock()
		if name == fsyncExtension {
			request = slices.Concat([]byte{setAttributes}, request[1:5], rest, []byte{0, 0, 0, 0})
		}
	}

	s.requests.Write(binary.BigEndian.AppendUint32(nil, uint32(len(request))))
	s.requests.Write(request)

	return nil
}

// A file is on the server's disk before it gets its name: after a crash of the server it is whole or not there.
func TestFolder_IsOnTheDiskBeforeItHasItsName(t *testing.T) {
	t.Parallel()

	var mu sync.Mutex
	var asked []string
	s := sftpBehind(t, func(channel ssh.Channel) io.ReadWriteCloser {
		return &syncing{Channel: channel, mu: &mu, asked: &asked}
	})
	files := theSet()

	_, err := deliverTo(t.Context(), s.open(t), files)

	must(t, err)
	const link = "hardlink@openssh.com"
	want := []string{fsyncExtension, link, fsyncExtension, link, fsyncExtension, link, fsyncExtension, link}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for were %q, want %q", asked, want)
	}
	if !maps.Equal(s.files(), whole(t, files)) {
		t.Errorf("there are %v", slices.Sorted(maps.Keys(s.files())))
	}
}

// What calls left that were interrupted is removed with the next success; what another process is writing of another
// file stays.
func TestFolder_RemovesWhatOthersLeftOfItsFile(t *testing.T) {
	t.Parallel()

	s := goSFTP(t)
	const left, other = month + "/orders.csv.part-LEFT", month + "/payments.csv.part-OTHER"
	s.put(left, "half of it")
	s.put(other, "half of it")

	_, err := deliverTo(t.Context(), s.open(t), theSet()[:1])

	must(t, err)
	there := slices.Sorted(maps.Keys(s.files()))
	if want := []string{path.Join(month, "orders.csv"), other}; !slices.Equal(there, want) {
		t.Errorf("there are %q, want %q", there, want)
	}
}
