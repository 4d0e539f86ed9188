package main

import (
	"crypto/sha256"
	"crypto/sha512"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

var hashes = map[string]scram.HashGeneratorFcn{"SCRAM-SHA-256": sha256.New, "SCRAM-SHA-512": sha512.New}

// A conversation of SCRAM: sarama leaves the mechanism to the program.
type conversation struct {
	*scram.ClientConversation
	mechanism string
}

func (c *conversation) Begin(user, password, authorizationID string) error {
	client, err := hashes[c.mechanism].NewClient(user, password, authorizationID)
	if err != nil {
		return err
	}
	c.ClientConversation = client.NewConversation()
	return nil
}

// A token that the test has given.
type given string

func (g given) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(g)}, nil
}
