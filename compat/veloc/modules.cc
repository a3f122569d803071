// libveloc-modules.so has nothing: what VELOC has there is tailrace's work. Programs that were linked with
// VELOC ask for a library of this name.
