package config

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// checkComplete returns an error for every key of settings that body does not have, and
// for every key without a value that is neither a text nor a list: a number that is left
// out would be 0, which often means that there is no limit. settings have been decoded
// from body, so what they are written as has every key, in the order of their type.
func checkComplete(body ast.Node, settings any) error {
	text, err := yaml.Marshal(settings)
	if err != nil {
		return fmt.Errorf("write the settings: %w", err)
	}

	var whole, given any
	if err := yaml.UnmarshalWithOptions(text, &whole, yaml.UseOrderedMap()); err != nil {
		return fmt.Errorf("read the settings again: %w", err)
	}

	if body != nil {
		if err := yaml.NodeToValue(body, &given); err != nil {
			return err
		}
	}

	return errors.Join(incomplete("", whole, given)...)
}

// incomplete compares a value of the file with what it was read as. key is its place,
// such as deliver.targets[0].url, and empty for the whole file.
func incomplete(key string, whole, given any) []error {
	switch whole := whole.(type) {
	case yaml.MapSlice:
		return incompleteKeys(key, whole, given)
	case []any:
		return incompleteElements(key, whole, given)
	}

	if given == nil && whole != nil && whole != "" {
		return []error{fmt.Errorf("%s: has no value", key)}
	}

	return nil
}

func incompleteKeys(key string, whole yaml.MapSlice, given any) (faults []error) {
	keys, _ := given.(map[string]any) // none where the section is empty
	for _, item := range whole {
		name := fmt.Sprint(item.Key)
		if key != "" {
			name = key + "." + name
		}

		value, exists := keys[fmt.Sprint(item.Key)]
		_, isSection := item.Value.(yaml.MapSlice)
		if !exists && !isSection {
			faults = append(faults, fmt.Errorf("%s: missing", name))
			continue
		}

		faults = append(faults, incomplete(name, item.Value, value)...)
	}

	return faults
}

func incompleteElements(key string, whole []any, given any) (faults []error) {
	elements, _ := given.([]any) // a text where one element was written without brackets
	for i, element := range whole {
		if i < len(elements) {
			faults = append(faults, incomplete(fmt.Sprintf("%s[%d]", key, i), element, elements[i])...)
		}
	}
	return faults
}
