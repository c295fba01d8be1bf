// Checks histories of one account and its key against a sequential model, with porcupine (github.com/anishathalye/porcupine).
// Input: one JSON array of operations per line, one line per account.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Client int    `json:"client"`
	Kind   string `json:"kind"` // place, end, limit, read
	// place: the quote. end: the quote. limit: the new limit.
	Amount int64 `json:"amount"`
	// end: what is charged.
	Charged int64 `json:"charged"`
	// place: "held" or the code of the refusal. read: spendable and held.
	Answer    string `json:"answer"`
	Spendable int64  `json:"spendable"`
	Held      int64  `json:"held"`
	Call      int64  `json:"call"`
	Return    int64  `json:"return"`
}

type account struct{ spendable, held, spent, limit int64 }

func step(state, input, _ interface{}) (bool, interface{}) {
	a, op := state.(account), input.(operation)
	switch op.Kind {
	case "open":
		return true, account{spendable: op.Amount, limit: op.Charged}
	case "place":
		answer := "held"
		if a.spent+a.held+op.Amount > a.limit {
			answer = "key_limit_exceeded"
		} else if op.Amount > a.spendable {
			answer = "insufficient_balance"
		}
		if answer == "held" {
			a.spendable -= op.Amount
			a.held += op.Amount
		}
		return answer == op.Answer, a
	case "end":
		a.held -= op.Amount
		a.spent += op.Charged
		a.spendable += op.Amount - op.Charged
		return a.held >= 0, a
	case "limit":
		a.limit = op.Amount
		return true, a
	case "read":
		return a.spendable == op.Spendable && a.held == op.Held, a
	}
	return false, a
}

func main() {
	model := porcupine.Model{Init: func() interface{} { return account{} }, Step: step}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	accounts, operations := 0, 0
	results := map[porcupine.CheckResult]int{}
	for lines.Scan() {
		var read []operation
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			panic(err)
		}
		var history []porcupine.Operation
		for _, op := range read {
			history = append(history, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Output: nil, Return: op.Return})
		}
		accounts++
		operations += len(history)
		results[porcupine.CheckOperationsTimeout(model, history, 30*time.Second)]++
	}
	fmt.Printf("{\"accounts\":%d,\"operations\":%d,\"linearizable\":%d,\"illegal\":%d,\"unknown\":%d}\n",
		accounts, operations, results[porcupine.Ok], results[porcupine.Illegal], results[porcupine.Unknown])
}
