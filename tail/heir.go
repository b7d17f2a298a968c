package tail

import "slices"

// knownTo is which paths and inodes the blocks of the spool know, by the names of the blocks.
type knownTo struct {
	paths  map[string]map[string]bool
	inodes map[string]map[uint64]bool
}

func knownOf(list []Known) knownTo {
	k := knownTo{map[string]map[string]bool{}, map[string]map[uint64]bool{}}
	for _, o := range list {
		if k.paths[o.Block] == nil {
			k.paths[o.Block], k.inodes[o.Block] = map[string]bool{}, map[uint64]bool{}
		}
		k.paths[o.Block][o.Path], k.inodes[o.Block][o.Fingerprint.Ino] = true, true
	}
	return k
}

// heirOf is the block that takes over a file of the spool whose block is gone from the config: the first that finds its path and
// does not know the file itself; -1: none. Only with a block the file is looked for under the names that rotations give it.
func (w *Watcher) heirOf(k Known, known knownTo) int {
	heir := -1
	for i, b := range w.blocks {
		knows := known.paths[b.Name][k.Path] || known.inodes[b.Name][k.Fingerprint.Ino] ||
			slices.ContainsFunc(w.strays[k.Fingerprint.Ino], func(f *File) bool { return f.src.key.block == i })
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
