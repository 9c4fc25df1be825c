// Finds the attribute to show an error of the API at.

package provider

import (
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// attributePath finds the attribute of a field that the server names, such as rules[2].filter. It goes as deep as the schema
// lets it: the elements of a set have no index.
func attributePath(attributes map[string]schema.Attribute, field string) (path.Path, bool) {
	at := path.Empty()
	for depth, step := range strings.Split(field, ".") {
		name, index, _ := strings.Cut(strings.TrimSuffix(step, "]"), "[")
		attribute, ok := attributes[name]
		if !ok {
			return at, depth > 0
		}
		at = at.AtName(name)
		number, err := strconv.Atoi(index)
		attributes = nil
		switch attribute := attribute.(type) {
		case schema.ListNestedAttribute:
			if err != nil {
				return at, true
			}
			at = at.AtListIndex(number)
			attributes = attribute.NestedObject.Attributes
		case schema.ListAttribute:
			if err == nil {
				at = at.AtListIndex(number)
			}
		case schema.SingleNestedAttribute:
			attributes = attribute.Attributes
		}
	}
	return at, true
}
