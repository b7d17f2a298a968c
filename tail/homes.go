package tail

// Where a source of the spool may be now that no pattern found: beside the path it had, behind a symlink that was moved, and where
// files of its block really are: the symlink that it was known by may be gone together with the name that it led to.

import (
	"maps"
	"slices"
)

// homesMax bounds the directories of a block that are searched for files by their inode numbers: more than a host has containers.
const homesMax = 1024

// withInode lists the files that have the inode number of f, in all places where it may be.
func (w *Watcher) withInode(f *File) (list []sibling) {
	for _, dir := range append(w.dirsOf(f.Path()), w.linkedDirs(f.Path())...) {
		list = append(list, w.siblingsWith(dir, f.fp.Ino)...)
	}
	if f.fp.Born == 0 || !f.src.lostSince.IsZero() {
		return list // a number alone says too little of another directory; and these are searched until its loss is told
	}
	return append(list, w.atHome(f.src.key.block)[f.fp.Ino]...)
}

// atHome lists the files in the directories where those of a block are that a pattern found, by inode number.
func (w *Watcher) atHome(block int) map[uint64][]sibling {
	if list, ok := w.homes[block]; ok {
		return list
	}
	dirs := map[string]bool{}
	for _, g := range w.sources {
		if s := &g.src; s.key.block == block && !s.missing && s.real != "" {
			dirs[parent(s.real)] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(dirs))
	list := map[uint64][]sibling{}
	for _, dir := range sorted[:min(homesMax, len(sorted))] {
		for _, sib := range w.siblingsIn(dir) {
			list[sib.st.ino] = append(list[sib.st.ino], sib)
		}
	}
	w.homes[block] = list
	return list
}
