// See fake_nccl.hpp. Sums have the order of docs/reductions.md, so that tests can compare bits.
#include "fake_nccl.hpp"

#include "library.hpp"

#include <tenon/sdk/fixed_order.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake_nccl {

// The file that members of a fake communicator map (fake_nccl.hpp): a place for the input of each member to a
// collective, and a message box for each pair.

inline constexpr int kMembers = 8;
inline constexpr std::size_t kPlace = std::size_t{16} << 20, kBox = std::size_t{4} << 20;

struct Member {
  std::atomic<std::uint64_t> posted, read;  ///< number of the newest collective
  std::byte bytes[kPlace];
};
struct Box {
  std::atomic<std::uint64_t> posted, read;
  std::byte bytes[kBox];
};
/// Initially zero. Untouched pages cost nothing.
struct Shared {
  std::atomic<int> arrived, gone, aborted;
  Member members[kMembers];
  Box boxes[kMembers][kMembers];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Segment {
 public:
  explicit Segment(const std::string& path) : path_(path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (::ftruncate(file, sizeof(Shared)) == 0) {
      void* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (at != MAP_FAILED) shared_ = static_cast<Shared*>(at);
    }
    ::close(file);
  }
  ~Segment() {
    if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  Shared* operator->() const { return shared_; }
  explicit operator bool() const { return shared_ != nullptr; }
  void forget() const { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  Shared* shared_ = nullptr;
};

}  // namespace fake_nccl

namespace nccl = tenon::nccl_transport;
using nccl::Comm;
using nccl::ncclComm;
using nccl::Stream;

namespace {

enum class Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce, kSend, kReceive };

struct Part {
  Kind kind = Kind::kAllReduce;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;
  int type = 0, op = 0, peer = 0;  // peer: or root
  std::uint64_t number = 0;
  bool posted = false, done = false, hangs = false;
};
struct Work {
  std::vector<Part> parts;  // that run concurrently
  Stream stream = nullptr;
};

struct Rule {
  std::string what, call;
  int rank = -1, nth = 0, code = 0;
};

struct State {
  std::mutex mutex;
  std::vector<Rule> rules;
  std::vector<std::pair<std::thread::id, std::string>> record;
  std::set<Comm> open;
  std::vector<std::pair<void*, std::pair<std::uint64_t, std::uint64_t>>> streams;  // given, run
  bool in_streams = false;
  int version = 22809, ids = 0;
};
State& state() {
  static State state;
  return state;
}

std::size_t width(int type) {
  switch (type) {
    case nccl::kInt8:
    case nccl::kUint8:
      return 1;
    case nccl::kFloat16:
    case nccl::kBfloat16:
      return 2;
    case nccl::kInt32:
    case nccl::kUint32:
    case nccl::kFloat32:
      return 4;
    default:
      return 8;
  }
}

tenon::DType dtype(int type) {
  constexpr tenon::DType kTypes[] = {
      tenon::DType::kI8,  tenon::DType::kU8,  tenon::DType::kI32, tenon::DType::kU32, tenon::DType::kI64,
      tenon::DType::kU64, tenon::DType::kF16, tenon::DType::kF32, tenon::DType::kF64, tenon::DType::kBF16};
  return kTypes[type];
}

}  // namespace

struct tenon::nccl_transport::ncclComm {
  std::unique_ptr<fake_nccl::Segment> segment;
  int rank = 0, ranks = 0, polls = 0, children = 0;
  bool arrived = false, revoked = false, finalized = false;
  std::uint64_t collectives = 0, sent[fake_nccl::kMembers] = {}, received[fake_nccl::kMembers] = {};
  std::deque<Work> work;
  std::vector<std::pair<std::string, int>> calls;
  int error = 0;
  // A shrink in progress, seen on the parent.
  Comm child = nullptr;
  Comm* child_at = nullptr;
};

namespace {

std::pair<std::uint64_t, std::uint64_t>& of_stream(void* stream) {
  for (auto& [some, counts] : state().streams) {
    if (some == stream) return counts;
  }
  return state().streams.emplace_back(stream, std::pair<std::uint64_t, std::uint64_t>()).second;
}

void combine(const Part& part, const std::vector<const void*>& inputs, std::byte* out, std::size_t elements) {
  const auto op = part.op == nccl::kMax   ? tenon::ReduceOp::kMax
                  : part.op == nccl::kMin ? tenon::ReduceOp::kMin
                                          : tenon::ReduceOp::kSum;
  tenon::reduce_in_order(inputs, out, static_cast<std::int64_t>(elements), dtype(part.type), op);
}

std::vector<const void*> in_order(const ncclComm& comm, int owner, std::size_t offset) {
  std::vector<const void*> inputs;
  for (int k = 0; k < comm.ranks; ++k)
    inputs.push_back((*comm.segment)->members[tenon::ring_source(owner, k, comm.ranks)].bytes + offset);
  return inputs;
}

void finish_collective(const ncclComm& comm, const Part& part) {
  const std::size_t bytes = part.count * width(part.type);
  auto& members = (*comm.segment)->members;
  switch (part.kind) {
    case Kind::kAllReduce:
      for (int chunk = 0; chunk < comm.ranks; ++chunk) {
        const auto range =
            tenon::ring_chunk(static_cast<std::int64_t>(part.count), dtype(part.type), chunk, comm.ranks);
        const std::size_t at = static_cast<std::size_t>(range.begin) * width(part.type);
        combine(part, in_order(comm, chunk, at), part.to + at, static_cast<std::size_t>(range.size()));
      }
      return;
    case Kind::kReduceScatter:
      return combine(part, in_order(comm, comm.rank, bytes * static_cast<std::size_t>(comm.rank)), part.to,
                     part.count);
    case Kind::kReduce:
      if (part.peer == comm.rank) combine(part, in_order(comm, comm.rank, 0), part.to, part.count);
      return;
    case Kind::kAllGather:
      for (int r = 0; r < comm.ranks; ++r)
        std::memcpy(part.to + bytes * static_cast<std::size_t>(r), members[r].bytes, bytes);
      return;
    default:
      std::memmove(part.to, members[part.peer].bytes, bytes);
  }
}

/// Returns true when it is over.
bool step(ncclComm& comm, Part& part) {
  if (part.done) return true;
  if (part.hangs || (*comm.segment)->aborted > 0) return false;
  fake_nccl::Shared& shared = *comm.segment->operator->();
  const std::size_t bytes = part.count * width(part.type);
  if (part.kind == Kind::kSend) {
    fake_nccl::Box& box = shared.boxes[comm.rank][part.peer];
    if (!part.posted && box.read == part.number - 1) {
      std::memcpy(box.bytes, part.from, bytes);
      box.posted = part.number;
      part.posted = true;
    }
    return part.done = part.posted && box.read >= part.number;
  }
  if (part.kind == Kind::kReceive) {
    fake_nccl::Box& box = shared.boxes[part.peer][comm.rank];
    if (box.posted < part.number) return false;
    std::memcpy(part.to, box.bytes, bytes);
    box.read = part.number;
    return part.done = true;
  }
  const auto all = [&](auto holds) {
    for (int r = 0; r < comm.ranks; ++r) {
      if (!holds(shared.members[r])) return false;
    }
    return true;
  };
  fake_nccl::Member& mine = shared.members[comm.rank];
  if (!part.posted) {
    if (!all([&](const auto& member) { return member.read >= part.number - 1; })) return false;
    const bool brings = part.kind != Kind::kBroadcast || part.peer == comm.rank;
    const std::size_t times = part.kind == Kind::kReduceScatter ? static_cast<std::size_t>(comm.ranks) : 1;
    if (brings) std::memcpy(mine.bytes, part.from, bytes * times);
    mine.posted = part.number;
    part.posted = true;
  }
  if (!all([&](const auto& member) { return member.posted >= part.number; })) return false;
  finish_collective(comm, part);
  mine.read = part.number;
  return part.done = true;
}

void progress(ncclComm& comm) {
  if (!comm.arrived) comm.arrived = (*comm.segment)->arrived >= comm.ranks;
  if (comm.arrived && !comm.revoked && (*comm.segment)->arrived == comm.ranks) comm.segment->forget();
  while (comm.arrived && !comm.work.empty()) {
    bool over = true;
    for (Part& part : comm.work.front().parts) over = step(comm, part) && over;
    if (!over) return;
    ++of_stream(comm.work.front().stream).second;
    comm.work.pop_front();
  }
}

void stop_work(ncclComm& comm) {
  for (const Work& work : comm.work) ++of_stream(work.stream).second;
  comm.work.clear();
}

bool in_progress(const ncclComm& comm) {
  return !comm.arrived || comm.polls > 0 || (!state().in_streams && !comm.work.empty());
}

const Rule* rule_for(ncclComm& comm, const std::string& call) {
  auto found = std::find_if(comm.calls.begin(), comm.calls.end(),
                            [&](const auto& some) { return some.first == call; });
  if (found == comm.calls.end()) found = comm.calls.insert(comm.calls.end(), {call, 0});
  ++found->second;
  for (const Rule& rule : state().rules) {
    if (rule.call == call && (rule.rank < 0 || rule.rank == comm.rank) && rule.nth == found->second)
      return &rule;
  }
  return nullptr;
}

void note(const std::string& line) {
  for (auto& [thread, lines] : state().record) {
    if (thread == std::this_thread::get_id()) return void(lines += line + "\n");
  }
  state().record.emplace_back(std::this_thread::get_id(), line + "\n");
}
void note(const ncclComm& comm, const std::string& what) {
  note(std::to_string(comm.rank) + "/" + std::to_string(comm.ranks) + " " + what);
}

struct GroupCalls {
  int depth = 0;
  std::vector<std::pair<Comm, Work>> work;
};
thread_local GroupCalls t_group;

int enqueue(Comm comm, const char* call, Part part, Stream stream) {
  const std::lock_guard lock(state().mutex);
  if (!state().open.contains(comm)) return nccl::kInvalidArgument;
  progress(*comm);
  note(*comm, std::string(call) + " " + std::to_string(part.count));
  // NCCL allows no other call on a communicator that is in progress.
  if (in_progress(*comm) || comm->revoked || comm->finalized) return nccl::kInvalidUsage;
  if (const Rule* rule = rule_for(*comm, call)) {
    if (rule->what == "fail") return rule->code;
    part.hangs = rule->what == "hang";
  }
  if (part.kind == Kind::kSend) {
    part.number = ++comm->sent[part.peer];
  } else if (part.kind == Kind::kReceive) {
    part.number = ++comm->received[part.peer];
  } else {
    part.number = ++comm->collectives;
  }
  if (t_group.depth == 0) {
    comm->work.push_back({{part}, stream});
    ++of_stream(stream).first;
    comm->polls = state().in_streams ? 2 : 0;
    return nccl::kInProgress;
  }
  for (auto& [some, work] : t_group.work) {
    if (some != comm) continue;
    work.parts.push_back(part);
    return nccl::kSuccess;
  }
  t_group.work.push_back({comm, {{part}, stream}});
  return nccl::kSuccess;
}

Comm make_comm(const std::string& path, int ranks, int rank) {
  auto* const comm = new ncclComm();
  comm->segment = std::make_unique<fake_nccl::Segment>(path);
  comm->ranks = ranks;
  comm->rank = rank;
  if (!*comm->segment) {
    delete comm;
    return nullptr;
  }
  ++(*comm->segment)->arrived;
  state().open.insert(comm);
  return comm;
}

void free_comm(Comm comm) {
  stop_work(*comm);
  comm->segment->forget();
  state().open.erase(comm);
  delete comm;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = state().version;
  return nccl::kSuccess;
}

int ncclGetUniqueId(nccl::UniqueId* id) {
  const std::lock_guard lock(state().mutex);
  note("GetUniqueId");
  std::string path = std::filesystem::temp_directory_path().string() + "/tenon_fake_nccl." +
                     std::to_string(::getpid()) + "." + std::to_string(state().ids++) + "." +
                     std::to_string(reinterpret_cast<std::uintptr_t>(&state()));
  if (path.size() >= nccl::kUniqueIdBytes) return nccl::kSystemError;
  *id = {};
  path.copy(id->bytes, path.size());
  ::unlink(path.c_str());
  return nccl::kSuccess;
}

const char* ncclGetErrorString(int result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "in progress"};
  return result >= 0 && result < 8 ? kTexts[result] : "unknown";
}

const char* ncclGetLastError(Comm) {
  return "the fake's own words";
}

int ncclCommInitRankConfig(Comm* comm, int ranks, nccl::UniqueId id, int rank, nccl::Config* config) {
  const std::lock_guard lock(state().mutex);
  note(std::to_string(rank) + "/" + std::to_string(ranks) + " CommInitRankConfig");
  if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 0 ||
      ranks > fake_nccl::kMembers)
    return nccl::kInvalidArgument;
  *comm = make_comm(id.bytes, ranks, rank);
  return *comm == nullptr ? nccl::kSystemError : nccl::kInProgress;
}

int ncclCommFinalize(Comm comm) {
  const std::lock_guard lock(state().mutex);
  if (comm->revoked) return nccl::kInvalidUsage;
  note(*comm, "CommFinalize");
  comm->finalized = true;
  ++(*comm->segment)->gone;
  return nccl::kInProgress;
}

int ncclCommDestroy(Comm comm) {
  const std::lock_guard lock(state().mutex);
  note(*comm, "CommDestroy");
  free_comm(comm);
  return nccl::kSuccess;
}

int ncclCommAbort(Comm comm) {
  const std::lock_guard lock(state().mutex);
  note(*comm, "CommAbort");
  ++(*comm->segment)->aborted;
  free_comm(comm);
  return nccl::kSuccess;
}

int ncclCommRevoke(Comm comm, int) {
  const std::lock_guard lock(state().mutex);
  note(*comm, "CommRevoke");
  if (comm->revoked || comm->finalized) return nccl::kInvalidArgument;
  comm->revoked = true;
  ++(*comm->segment)->aborted;
  stop_work(*comm);
  comm->polls = 1;
  return nccl::kInProgress;
}

int ncclCommShrink(Comm comm, int* excluded, int count, Comm* made, nccl::Config* config, int flags) {
  const std::lock_guard lock(state().mutex);
  std::string what = "CommShrink";
  for (int i = 0; i < count; ++i) what += " " + std::to_string(excluded[i]);
  note(*comm, what + (flags == nccl::kShrinkAbort ? " abort" : ""));
  if (count <= 0 || config == nullptr || config->blocking != 0 || comm->polls > 0)
    return nccl::kInvalidArgument;
  if (std::count(excluded, excluded + count, comm->rank) > 0) return nccl::kInvalidArgument;
  if (flags == nccl::kShrinkAbort) stop_work(*comm);
  const auto below = std::count_if(excluded, excluded + count, [&](int some) { return some < comm->rank; });
  *made = nullptr;
  comm->child = make_comm(comm->segment->path() + ".shrunk" + std::to_string(comm->children++),
                          comm->ranks - count, comm->rank - static_cast<int>(below));
  comm->child_at = made;
  return nccl::kInProgress;
}

int ncclCommGetAsyncError(Comm comm, int* error) {
  const std::lock_guard lock(state().mutex);
  if (!state().open.contains(comm)) return nccl::kInvalidArgument;
  progress(*comm);
  *error = nccl::kSuccess;
  for (const Rule& rule : state().rules) {
    if (rule.what == "async" && (rule.rank < 0 || rule.rank == comm->rank)) *error = rule.code;
  }
  if (*error != nccl::kSuccess) return nccl::kSuccess;
  if (comm->child != nullptr) {
    progress(*comm->child);
    *error = comm->child->arrived ? nccl::kSuccess : nccl::kInProgress;
    if (comm->child->arrived) *comm->child_at = std::exchange(comm->child, nullptr);
    return nccl::kSuccess;
  }
  if (comm->finalized) {
    *error = (*comm->segment)->gone >= comm->ranks ? nccl::kSuccess : nccl::kInProgress;
    return nccl::kSuccess;
  }
  if (in_progress(*comm) && !(comm->revoked && comm->polls == 0)) *error = nccl::kInProgress;
  comm->polls = std::max(0, comm->polls - 1);
  return nccl::kSuccess;
}

int ncclGroupStart() {
  const std::lock_guard lock(state().mutex);
  note("GroupStart");
  ++t_group.depth;
  return nccl::kSuccess;
}

int ncclGroupEnd() {
  const std::lock_guard lock(state().mutex);
  note("GroupEnd");
  if (--t_group.depth > 0) return nccl::kSuccess;
  bool any = false;
  for (auto& [comm, work] : t_group.work) {
    if (!state().open.contains(comm)) continue;
    any = true;
    ++of_stream(work.stream).first;
    comm->polls = state().in_streams ? 2 : 0;
    comm->work.push_back(std::move(work));
  }
  t_group.work.clear();
  return any ? nccl::kInProgress : nccl::kSuccess;
}

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int op, Comm comm, Stream stream) {
  return enqueue(
      comm, "AllReduce",
      {Kind::kAllReduce, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), count, type, op},
      stream);
}

int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int op, Comm comm,
                      Stream stream) {
  return enqueue(comm, "ReduceScatter",
                 {Kind::kReduceScatter, static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
                  count, type, op},
                 stream);
}

int ncclAllGather(const void* from, void* to, std::size_t count, int type, Comm comm, Stream stream) {
  return enqueue(
      comm, "AllGather",
      {Kind::kAllGather, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), count, type},
      stream);
}

int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, Comm comm,
                  Stream stream) {
  return enqueue(comm, "Broadcast",
                 {Kind::kBroadcast, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), count,
                  type, 0, root},
                 stream);
}

int ncclReduce(const void* from, void* to, std::size_t count, int type, int op, int root, Comm comm,
               Stream stream) {
  return enqueue(comm, "Reduce",
                 {Kind::kReduce, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), count,
                  type, op, root},
                 stream);
}

int ncclSend(const void* from, std::size_t count, int type, int peer, Comm comm, Stream stream) {
  return enqueue(comm, "Send",
                 {Kind::kSend, static_cast<const std::byte*>(from), nullptr, count, type, 0, peer}, stream);
}

int ncclRecv(void* to, std::size_t count, int type, int peer, Comm comm, Stream stream) {
  return enqueue(comm, "Recv", {Kind::kReceive, nullptr, static_cast<std::byte*>(to), count, type, 0, peer},
                 stream);
}

void fake_nccl_reset() {
  const std::lock_guard lock(state().mutex);
  state().rules.clear();
  state().record.clear();
  state().version = 22809;
  state().in_streams = false;
  for (const Comm comm : state().open) comm->calls.clear();
}

void fake_nccl_script(const char* text) {
  const std::lock_guard lock(state().mutex);
  std::istringstream words(text);
  Rule rule;
  words >> rule.what;
  if (rule.what == "version") {
    words >> state().version;
    return;
  }
  if (rule.what == "async") {
    words >> rule.rank >> rule.code;
  } else {
    words >> rule.call >> rule.rank >> rule.nth >> rule.code;
  }
  state().rules.push_back(rule);
}

void fake_nccl_streams(int on) {
  const std::lock_guard lock(state().mutex);
  state().in_streams = on != 0;
}

const char* fake_nccl_record() {
  thread_local std::string copy;
  const std::lock_guard lock(state().mutex);
  copy.clear();
  for (const auto& [thread, lines] : state().record) copy += lines;
  return copy.c_str();
}

std::uint64_t fake_nccl_given(void* stream) {
  const std::lock_guard lock(state().mutex);
  return of_stream(stream).first;
}

std::uint64_t fake_nccl_ran(void* stream) {
  const std::lock_guard lock(state().mutex);
  for (const Comm comm : state().open) progress(*comm);
  return of_stream(stream).second;
}

int fake_nccl_open() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int>(state().open.size());
}
}
