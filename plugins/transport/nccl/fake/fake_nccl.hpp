// A fake NCCL for tests: the functions of library.hpp over a file that the ranks map, for ranks that are
// threads of one process and for processes alike. Device memory is memory that the host may access. It
// records the calls and follows a script: fail, hang, delay. The functions below are additions to NCCL's.
#pragma once

#include <cstdint>

extern "C" {

/// Clears scripts and the record.
void fake_nccl_reset();
/// Adds a rule: "fail CALL RANK NTH CODE", "hang CALL RANK NTH", "async RANK CODE" (from now on), "version
/// N", "hang_abort RANK". NTH counts that rank's calls of this name from 1 since reset; RANK is that within
/// its communicator, -1 is all.
void fake_nccl_script(const char* rule);
/// Sets the end of operations: 0 = a communicator is in progress until all members have done the operation,
/// as if enqueuing took that long; 1 = it is in progress briefly, and the operation ends in its stream.
void fake_nccl_streams(int on);
/// Returns the calls since reset, a line each: "GroupStart", "0/3 AllReduce 12" (rank / ranks of the
/// communicator, call, count), grouped by thread; valid until the next call by this thread.
const char* fake_nccl_record();
/// Returns the operations given to `stream`, and how many of those have run (after progress of pending ones).
std::uint64_t fake_nccl_given(void* stream);
std::uint64_t fake_nccl_ran(void* stream);
/// Number of communicators that were created and have not ended.
int fake_nccl_open();
}
