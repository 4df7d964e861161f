// A stand-in for NCCL in tests: the functions of nccl_api.hpp over a file that the ranks map, for ranks that
// are threads of one process and for processes alike. Device memory is memory that the host may touch. It
// keeps a record of the calls and does what a script says: fail, hang, take its time. Beside NCCL's functions
// it has those below.
#pragma once

#include <cstdint>

extern "C" {

/// Forgets scripts and the record.
void fake_nccl_reset();
/// One rule more: "fail CALL RANK NTH CODE", "hang CALL RANK NTH", "async RANK CODE" (from now on), "version
/// N", "hang_abort RANK". NTH counts that rank's calls of this name from 1 since reset; RANK is that within
/// its communicator, -1 is all.
void fake_nccl_script(const char* rule);
/// How operations end: 0 = a communicator is in progress until all members have done the operation, as if
/// enqueuing took as long as that; 1 = it is in progress for a moment, and the operation ends in its stream.
void fake_nccl_streams(int on);
/// The calls since reset, a line each: "GroupStart", "0/3 AllReduce 12" (rank / ranks of the communicator,
/// call, count), those of one thread after those of another; valid until the next call by this thread.
const char* fake_nccl_record();
/// Operations that `stream` was given, and how many of those have run (looks after them first).
std::uint64_t fake_nccl_given(void* stream);
std::uint64_t fake_nccl_ran(void* stream);
/// Communicators that were made and have not ended.
int fake_nccl_open();
}
