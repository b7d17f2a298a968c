package tail

import "slices"

// heirOf is the block that takes over a file of the spool whose block is gone from the config: the first that finds its path and
// does not know the file itself; -1: none. Only with a block the file is looked for under the names that rotations give it.
func (w *Watcher) heirOf(k Known, known []Known) int {
	heir := -1
	for i, b := range w.blocks {
		knows := slices.ContainsFunc(known, func(o Known) bool {
			return o.Block == b.Name && (o.Path == k.Path || o.Fingerprint.Ino == k.Fingerprint.Ino)
		}) || slices.ContainsFunc(w.strays[k.Fingerprint.Ino], func(f *File) bool { return f.src.key.block == i })
		if heir < 0 && !knows && firstMatch(b.Paths, k.Path) != "" && firstMatch(b.Exclude, k.Path) == "" {
			heir = i
		}
	}
	return heir
}

// Heirs tells, by the name of a block that is gone from the config, which blocks take over files of it. It must be called before Run.
func (w *Watcher) Heirs() map[string][]string {
	heirs := map[string][]string{}
	for _, list := range w.strays {
		for _, f := range list {
			if was := f.src.wasBlock; was != "" && f.src.key.block >= 0 {
				if heir := w.blocks[f.src.key.block].Name; !slices.Contains(heirs[was], heir) {
					heirs[was] = append(heirs[was], heir)
				}
			}
		}
	}
	return heirs
}
