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

// User is what AGENT_SETTINGS says of the way to the broker: TLS or nil, and a mechanism or "".
type User struct {
	Mechanism, Name, Password, Token string
	TLS                              *tls.Config
}

// GivenUser returns what AGENT_SETTINGS has, by librdkafka's names and `sasl.oauthbearer.token`; nil without any.
func GivenUser() *User {
	given := map[string]string{}
	for line := range strings.SplitSeq(os.Getenv("AGENT_SETTINGS"), "\n") {
		name, value, _ := strings.Cut(line, "=")
		given[name] = value
	}
	protocol := given["security.protocol"]
	if protocol == "" {
		return nil
	}
	user := &User{given["sasl.mechanism"], given["sasl.username"], given["sasl.password"], given["sasl.oauthbearer.token"], nil}
	if strings.HasSuffix(protocol, "SSL") {
		user.TLS = encryption(given)
	}
	return user
}

func encryption(given map[string]string) *tls.Config {
	authority, err := os.ReadFile(given["ssl.ca.location"])
	if err != nil {
		panic(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if file := given["ssl.certificate.location"]; file != "" {
		own, err := tls.LoadX509KeyPair(file, given["ssl.key.location"])
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config
}
