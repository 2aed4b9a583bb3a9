"""The archive: closed segments of the log as files in an object store, and reading them with it.

A file is `segment-<number>-<first>-<last>.allotment`. It needs no other file to be read, and is a
plain zstd stream: `zstd -dc FILE` prints the records as `allot log -o jsonl` does, and
`head -1 FILE` shows the header. What is not a record is in frames that zstd skips:

    header    JSON: which log and segment, its sequences and times, the chain's heads before and
              after it, the digest of the state at its end, where its checkpoint is
    frames    each up to 4 MiB of lines, or one longer line, with a checksum of zstd's; a line has
              the record's bytes as they are stored, and how its head in the chain begins
    table     JSON: of each frame its first sequence, times, place, and the head before it
    footer    JSON of a fixed length: where the table is, the last head, the SHA-256 of all before

So a reader takes the footer and the table, and then the frames that it needs. Every part is checked
when it is read: a frame that is altered, or at another's place, is reported with the first record
that is not as it was written.
"""
