// Package rawjson reads, checks, repairs and writes JSON whose bytes the server keeps.
//
// Check makes one pass over a request body and refuses what the rest of the server must never see; after it a codec may read
// members in any order and keep opaque values unchanged. Repair mends text of programs whose strings are UTF-16, and who cut one in
// the middle of a character. Reader reports faults by their path, and the Append functions write.
package rawjson
