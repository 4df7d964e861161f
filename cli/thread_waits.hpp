/// Sets how the threads of this process wait for each other.
#pragma once

namespace tenon::cli {

/// Threads of OpenMP wait for the next piece of work by spinning, by default for milliseconds: on a machine
/// that does anything else, the spinning thread holds the processor that the late one needs, and a step takes
/// ten times as long. Starts the program again with a short spin (GOMP_SPINCOUNT=2000), since the runtime
/// reads its settings before main; does nothing where the user chose one (GOMP_SPINCOUNT, OMP_WAIT_POLICY) or
/// where the program cannot be started again.
void shorten_thread_waits(char** arguments);

}  // namespace tenon::cli
