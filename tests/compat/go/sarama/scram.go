package main

import (
	"crypto/sha512"

	"github.com/xdg-go/scram"
)

// A conversation of SCRAM-SHA-512: sarama leaves the mechanism to the program.
type conversation struct {
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authorizationID string) error {
	client, err := scram.HashGeneratorFcn(sha512.New).NewClient(user, password, authorizationID)
	if err != nil {
		return err
	}
	c.ClientConversation = client.NewConversation()
	return nil
}
