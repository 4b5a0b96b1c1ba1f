package core

// Remember adds to a map of at most so many, which begins again when it is full.
func Remember[K comparable, V any](known *map[K]V, most int, key K, value V) {
	if *known == nil || len(*known) >= most {
		*known = map[K]V{}
	}
	(*known)[key] = value
}
