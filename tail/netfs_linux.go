package tail

import "golang.org/x/sys/unix"

// remoteKinds are file systems that others may write to without an event here, by the number that statfs gives them.
var remoteKinds = map[uint32]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.FUSE_SUPER_MAGIC: "FUSE", unix.V9FS_MAGIC: "9P", unix.CEPH_SUPER_MAGIC: "Ceph", unix.AFS_FS_MAGIC: "AFS", unix.AFS_SUPER_MAGIC: "AFS",
	0x0BD00BD0: "Lustre", 0x47504653: "GPFS", 0x01161970: "GFS2", 0x7461636F: "OCFS2",
}

// remoteKind names the file system of a directory if inotify does not tell all that happens on it; "" if it does.
func remoteKind(dir string) string {
	var s unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &s) }); err != nil {
		return ""
	}
	return remoteKinds[uint32(s.Type)]
}
