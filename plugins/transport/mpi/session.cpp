// Start, end and rendezvous of session.hpp.
#include "session.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace tenon::mpi_transport {

namespace {

/// Texts of the rendezvous are separate from frames.
constexpr int kTextTag = 7;

/// Variables that launchers set in the environment of their processes.
constexpr const char* kLaunchers[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMI_FD", "PMIX_RANK"};
constexpr const char* kSizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

// MPI can be finalised once in a process, and then waits for all ranks: after a failure they may never come,
// and the launcher ends them itself.
void end_mpi(int status, void*) {
  int ended = 0;
  if (MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0 || status != 0) return;
  MPI_Finalize();
}

void require_launcher() {
  for (const char* name : kLaunchers) {
    if (std::getenv(name) != nullptr) return;
  }
  fail_config(
      "transport.mpi: this process was not started by an MPI launcher; write mpirun -n 4 tenon train ...; "
      "under Slurm srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH) -n 4 tenon train ...; or take "
      "transport.type = \"socket\" with tenon launch -n 4 -- train ...");
}

}  // namespace

std::string_view vendor() {
#ifdef OPEN_MPI
  return "Open MPI";
#else
  return "MPICH";
#endif
}

void check(int status, std::string_view call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0, error_class = MPI_ERR_UNKNOWN;
  MPI_Error_string(status, text.data(), &length);
  MPI_Error_class(status, &error_class);
  const std::string what = fmt::format("transport.mpi: {} of {} failed: {}", call, vendor(), text.data());
  // Arguments come from this plugin alone; any other failure is the machine's.
  if (error_class == MPI_ERR_NO_MEM) fail_run(what + "; use smaller tensors, or fewer ranks on this machine");
  fail_run(what);
}

MPI_Comm duplicate_world(const MpiRendezvous& session, double deadline_s) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s);
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(session.mutex());
    check(MPI_Comm_idup(MPI_COMM_WORLD, &made, &request), "MPI_Comm_idup");
  }
  while (true) {
    {
      const std::lock_guard lock(session.mutex());
      int done = 0;
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) break;
    }
    if (std::chrono::steady_clock::now() > limit) {
      throw DeadlineError(
          fmt::format("transport.mpi: not all {} ranks connected within {:g} s; see their logs",
                      session.ranks(), deadline_s));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::lock_guard lock(session.mutex());
  check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return made;
}

void MpiRendezvous::start() const {
  if (rank_ >= 0) return;
  int started = 0;
  check(MPI_Initialized(&started), "MPI_Initialized");
  if (started == 0) {
    require_launcher();
    int provided = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    ::on_exit(end_mpi, nullptr);
    if (provided < MPI_THREAD_SERIALIZED) {
      fail_config(
          fmt::format("transport.mpi: this {} was built without threads (MPI_THREAD_SERIALIZED); take "
                      "another, or transport.type = \"socket\"",
                      vendor()));
    }
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks_), "MPI_Comm_size");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  for (const char* name : kSizes) {
    const char* const text = std::getenv(name);
    if (text == nullptr || std::atoi(text) == ranks_) continue;
    fail_config(
        fmt::format("transport.mpi: the launcher started {} processes, but {} sees {}: launcher and plugin "
                    "are of different MPI libraries; start with the mpirun of {}, or name the other plugin",
                    text, vendor(), ranks_, vendor()));
  }
  rank_ = rank;
}

std::mutex& MpiRendezvous::mutex() const {
  static std::mutex mutex;
  return mutex;
}

int MpiRendezvous::rank() const {
  const std::lock_guard lock(mutex());
  start();
  return rank_;
}

int MpiRendezvous::ranks() const {
  const std::lock_guard lock(mutex());
  start();
  return ranks_;
}

// Uses messages instead of MPI_Allgather, which could not name a late rank and would wait for ever.
std::vector<std::string> MpiRendezvous::exchange(const std::string& text) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s_);
  std::vector<std::string> texts(ranks());
  std::vector<MPI_Request> sends;
  {
    const std::lock_guard lock(mutex());
    for (int other = 0; other < ranks_; ++other) {
      if (other == rank_) continue;
      check(MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, other, kTextTag, MPI_COMM_WORLD,
                      &sends.emplace_back()),
            "MPI_Isend");
    }
  }
  texts[rank_] = text;
  std::vector<int> missing;
  for (int other = 0; other < ranks_; ++other) {
    if (other != rank_) missing.push_back(other);
  }
  int sent = 0;
  while (true) {
    {
      const std::lock_guard lock(mutex());
      std::erase_if(missing, [&](int other) {
        int found = 0, bytes = 0;
        MPI_Message message;
        MPI_Status status;
        check(MPI_Improbe(other, kTextTag, MPI_COMM_WORLD, &found, &message, &status), "MPI_Improbe");
        if (found == 0) return false;
        check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
        std::string& received = texts[other];
        received.resize(bytes);
        check(MPI_Mrecv(received.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
        return true;
      });
      check(MPI_Testall(static_cast<int>(sends.size()), sends.data(), &sent, MPI_STATUSES_IGNORE),
            "MPI_Testall");
    }
    if (missing.empty() && sent != 0) return texts;
    if (std::chrono::steady_clock::now() > limit) {
      throw DeadlineError(
          fmt::format("transport.mpi: {} did not come to the rendezvous within {:g} s; see their logs",
                      ranks_text(missing), deadline_s_));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace tenon::mpi_transport
