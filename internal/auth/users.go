package auth

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// ParseUsers reads a file of users in the format of htpasswd: name:hash on each line. Each line may add :tenant and
// :scopes (separated by spaces).
func ParseUsers(content []byte) ([]User, error) {
	var users []User
	lines := bufio.NewScanner(bytes.NewReader(content))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, ":", 4) // scopes may contain colons
		if len(fields) < 2 || fields[0] == "" {
			return nil, fmt.Errorf("line %d is not a user; write name:hash, name:hash:tenant or name:hash:tenant:scopes", n)
		}
		u := User{Name: fields[0], Hash: fields[1]}
		if len(fields) > 2 {
			u.Tenant = fields[2]
		}
		if len(fields) > 3 {
			u.Scopes = strings.Fields(fields[3])
		}
		users = append(users, u)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(users) == 0 {
		return nil, errors.New("the file has no users; add at least one")
	}
	return users, nil
}
