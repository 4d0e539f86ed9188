// Package agent has what the agents in Go share; what an agent is, says agents.py.
package agent

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// EveryThird of the transactions of a relay is aborted on purpose, and done again.
const EveryThird = 3

// Run performs each line of the standard input, and prints what became of it. `kindOf` is the library's name of an error.
func Run(perform func(words []string) (string, error), kindOf func(error) string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := perform(strings.Fields(lines.Text()))
		if err != nil {
			fmt.Println("error", kindOf(err), strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println(strings.TrimSpace("ok " + answer))
	}
}

// User is one of SCRAM-SHA-512 over TLS.
type User struct {
	Name, Password string
	TLS            *tls.Config
}

// GivenUser returns the user that AGENT_SETTINGS has, by librdkafka's names; nil without one.
func GivenUser() *User {
	given := map[string]string{}
	for line := range strings.SplitSeq(os.Getenv("AGENT_SETTINGS"), "\n") {
		name, value, _ := strings.Cut(line, "=")
		given[name] = value
	}
	if given["security.protocol"] == "" {
		return nil
	}
	if given["security.protocol"] != "SASL_SSL" || given["sasl.mechanism"] != "SCRAM-SHA-512" {
		panic("the agents in Go know SCRAM-SHA-512 over TLS only")
	}
	authority, err := os.ReadFile(given["ssl.ca.location"])
	if err != nil {
		panic(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	return &User{given["sasl.username"], given["sasl.password"], &tls.Config{RootCAs: trusted}}
}
