package app

// Version is that of the newest release in CHANGELOG.md. What Go knows of a module
// that was built from a directory is no version.
const Version = "v0.1.0"
