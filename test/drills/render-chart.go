// Renders one template of the chart as Helm does: Go's text/template with sprig's functions and Helm's own fromYaml and .Files.Get.
// Standard input: {"template": …, "values": …, "files": {name: text}}. Numbers of values are float64, as they are to Helm.
package main

import (
	"encoding/json"
	"os"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type files map[string]string

func (f files) Get(name string) string { return f[name] }

func main() {
	var input struct {
		Template string
		Values   map[string]interface{}
		Files    files
	}
	must(json.NewDecoder(os.Stdin).Decode(&input))
	functions := sprig.TxtFuncMap()
	functions["fromYaml"] = func(text string) map[string]interface{} {
		var value map[string]interface{}
		must(yaml.Unmarshal([]byte(text), &value))
		return value
	}
	chart, err := template.New("chart").Option("missingkey=error").Funcs(functions).Parse(input.Template)
	must(err)
	release := map[string]interface{}{"Name": "rel", "Revision": 1}
	must(chart.Execute(os.Stdout, map[string]interface{}{"Values": input.Values, "Release": release, "Files": input.Files}))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
