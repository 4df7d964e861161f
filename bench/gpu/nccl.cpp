// All-reduce through the transport `nccl` against NCCL's own call, alternating within a round: on one rank,
// where only the overhead of the call remains, and over every GPU, each with a process that this program
// starts. Tensors are f32 in the device's memory, and a call counts from its start until the device is
// through.
#include "library.hpp"
#include "rows.hpp"

#include <tenon/clock.hpp>
#include <tenon/device.hpp>
#include <tenon/testing/rendezvous.hpp>
#include <tenon/transport.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>

namespace tenon::bench::gpu {

// The device of a rank of gpu_nccl: the one that the options name or, in a rehearsal, memory of the host that
// claims to be a device's. A stand-in for NCCL reads and writes the memory it is given, which the emulated
// device keeps closed.

/// For a library whose operations end before its communicator reports that the call is complete.
class HostStandIn final : public Device, public DeviceStreams, public DeviceEvents {
 public:
  explicit HostStandIn(int rank) : identity_("rank " + std::to_string(rank)) {}
  void open(const DeviceSpec&) override {}
  MemorySpace space() const override { return MemorySpace::kCuda; }
  void* allocate(std::size_t bytes) override { return std::calloc(1, bytes); }
  void release(void* memory, std::size_t) noexcept override { std::free(memory); }
  void copy(TensorView from, TensorView to) override { std::memcpy(to.data, from.data, from.bytes()); }
  void synchronize() override {}
  std::string_view kernel_choice() const override { return "stand-in"; }
  std::string_view features() const override { return ""; }
  void* query(std::string_view id) override {
    if (id == DeviceStreams::kId) return static_cast<DeviceStreams*>(this);
    if (id == DeviceEvents::kId) return static_cast<DeviceEvents*>(this);
    return nullptr;
  }

  void make_current() override {}
  std::string identity() override { return identity_; }
  void* stream() override { return this; }
  void* make_stream() override { return new char(); }
  void release_stream(void* stream) noexcept override { delete static_cast<char*>(stream); }
  void* make_event() override { return new char(); }
  void release_event(void* event) noexcept override { delete static_cast<char*>(event); }
  void record(void*, void*) override {}
  void wait(void*, void*) override {}
  bool reached(void*) override { return true; }

 private:
  std::string identity_;
};

template <typename Interface>
Interface& ability(Device& device) {
  void* const found = device.query(Interface::kId);
  if (found == nullptr) fail_config(std::string("gpu_nccl: the device has no ") + Interface::kId);
  return *static_cast<Interface*>(found);
}

// All-reduce with direct calls of NCCL: a communicator of its own, one call per operation, and no more than
// is needed to know that the device is through. The baseline of gpu_nccl for the transport.

class OwnNccl {
 public:
  /// Collective over the ranks that meet at `place`.
  OwnNccl(const nccl_transport::Library& library, Rendezvous& place, Device& device)
      : library_(library), streams_(ability<DeviceStreams>(device)), events_(ability<DeviceEvents>(device)) {
    streams_.make_current();
    nccl_transport::UniqueId id{};
    if (place.rank() == 0) library_.check(library_.api().GetUniqueId(&id), "GetUniqueId", nullptr);
    const std::string text = place.exchange(std::string(id.bytes, sizeof id.bytes)).front();
    if (text.size() != sizeof id.bytes) fail_run("gpu_nccl: rank 0 sent no id of NCCL");
    std::memcpy(id.bytes, text.data(), sizeof id.bytes);
    nccl_transport::Config config;
    config.blocking = 0;
    library_.check(library_.api().CommInitRankConfig(&comm_, place.ranks(), id, place.rank(), &config),
                   "CommInitRankConfig", nullptr);
    settle("CommInitRankConfig");
    stream_ = streams_.make_stream();
    event_ = events_.make_event();
  }
  ~OwnNccl() {
    if (library_.api().CommFinalize(comm_) == nccl_transport::kInProgress) poll();
    library_.api().CommDestroy(comm_);
    events_.release_event(event_);
    streams_.release_stream(stream_);
  }
  OwnNccl(const OwnNccl&) = delete;
  OwnNccl& operator=(const OwnNccl&) = delete;

  /// `data`: f32 in the device's memory.
  void all_reduce(const TensorView& data) {
    library_.check(
        library_.api().AllReduce(data.data, data.data, data.elements(), nccl_transport::kFloat32,
                                 nccl_transport::kSum, comm_, static_cast<nccl_transport::Stream>(stream_)),
        "AllReduce", comm_);
    settle("AllReduce");
    events_.record(event_, stream_);
    while (!events_.reached(event_)) {
    }
  }

 private:
  int poll() {
    int state = nccl_transport::kInProgress;
    while (state == nccl_transport::kInProgress) {
      if (library_.api().CommGetAsyncError(comm_, &state) != nccl_transport::kSuccess)
        return nccl_transport::kInternalError;
    }
    return state;
  }
  void settle(const char* call) { library_.check(poll(), call, comm_); }

  const nccl_transport::Library& library_;
  DeviceStreams& streams_;
  DeviceEvents& events_;
  nccl_transport::Comm comm_ = nullptr;
  void *stream_ = nullptr, *event_ = nullptr;
};

namespace {

using nccl_transport::Library;

struct Size {
  const char* name;
  std::int64_t elements, tiny;  ///< f32
  int calls;                    ///< of a round; the same on all ranks, which must call alike
};
constexpr Size kSizes[] = {
    {"4 KiB", 1 << 10, 16, 2000}, {"4 MiB", 1 << 20, 100, 200}, {"256 MiB", 1 << 26, 1000, 20}};
constexpr int kTinyCalls = 3;

std::string row_name(const Size& size, bool alone) {
  return fmt::format("all-reduce of {}, {}", size.name, alone ? "one rank" : "every GPU");
}

bool rehearsed(const GpuSettings& settings) {
  return settings.device != "cuda";
}

/// One rank of a world: its device, the transport on it, and the library by itself.
class Rank {
 public:
  Rank(const GpuSettings& settings, const Library& library, const std::string& folder, int rank, int ranks)
      : ranks_(ranks),
        library_(library),
        rendezvous_(folder, rank, ranks),
        place_(folder + "/own", rank, ranks) {
    registry_.discover({});
    std::filesystem::create_directories(folder + "/own");
    if (rehearsed(settings)) {
      stand_in_ = std::make_unique<HostStandIn>(rank);
      device_ = stand_in_.get();
    } else {
      made_ = testing::make<Device>(registry_, host_, settings.device, fmt::format("index = {}", rank));
      made_->open({.local_rank = rank, .threads = 1, .kernels = "auto"});
      device_ = &*made_;
    }
    transport_ = testing::make<Transport>(
        registry_, host_, "nccl",
        fmt::format("fast_nondeterministic = true\nlibrary = \"{}\"", settings.library));
    WorldSpec world;
    world.ranks = ranks;
    world.clock = clock_.get();
    world.rendezvous = &rendezvous_;
    transport_->connect(world);
    static_cast<DeviceTransport*>(transport_->query(DeviceTransport::kId))->attach(rank, *device_);
    for (int i = 0; i < ranks; ++i) members_.push_back(i);
    group_ = transport_->open(rank, {.ranks = members_, .name = "bench", .purpose = Purpose::kGradient});
    own_ = std::make_unique<OwnNccl>(library_, place_, *device_);
  }

  Row measure(const GpuSettings& settings, const Size& size) {
    const std::int64_t elements = settings.tiny ? size.tiny : size.elements;
    const DeviceMemory data(*device_, {elements}, DType::kF32);
    Row row{.name = row_name(size, ranks_ == 1), .unit = ranks_ == 1 ? "calls/s" : "GB/s"};
    row.limit = "NCCL's own call";
    row.overhead_unit = ranks_ == 1 ? "us" : "%";
    const double work = ranks_ == 1 ? 1 : 1e-9 * 4 * static_cast<double>(elements);
    const int calls = settings.tiny ? kTinyCalls : size.calls;
    for (int round = 0; round < settings.counted_rounds(); ++round) {
      const double own = mean(calls, [&] { own_->all_reduce(data.view()); });
      const double ours = mean(calls, [&] { group_->all_reduce(data.view(), ReduceOp::kSum); });
      row.seconds.push_back(ours);
      row.rates.push_back(work / ours);
      row.limits.push_back(work / own);
      row.overheads.push_back(ranks_ == 1 ? 1e6 * (ours - own) : 100 * (ours / own - 1));
    }
    return row;
  }

  std::string features() const {
    const std::string own(device_->features());
    return own + (own.empty() ? "" : ", ") + "NCCL " + library_.version();
  }

 private:
  /// Mean seconds of `calls` calls after a warm-up call, which also aligns the ranks.
  template <typename Call>
  double mean(int calls, Call call) {
    call();
    device_->synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
  }

  int ranks_;
  const Library& library_;
  testing::FolderRendezvous rendezvous_, place_;
  std::unique_ptr<Clock> clock_ = make_wall_clock();
  testing::QuietHost host_;
  Registry registry_;
  testing::Made<Device> made_;
  std::unique_ptr<HostStandIn> stand_in_;
  Device* device_ = nullptr;
  testing::Made<Transport> transport_;
  std::vector<int> members_;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<OwnNccl> own_;
};

std::vector<Row> measure_all(Rank& rank, const GpuSettings& settings) {
  std::vector<Row> rows;
  for (const Size& size : kSizes) rows.push_back(rank.measure(settings, size));
  return rows;
}

/// The other ranks, each a process of this program. The destructor ends those that still run.
class Others {
 public:
  Others(const GpuSettings& settings, const std::string& folder, int ranks) {
    char self[PATH_MAX] = {};
    if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) fail_run("gpu_nccl: it cannot find itself");
    for (int rank = 1; rank < ranks; ++rank) {
      std::vector<std::string> words = {self,
                                        "--device",
                                        settings.device,
                                        "--scale",
                                        settings.tiny ? "tiny" : "full",
                                        "--rounds",
                                        std::to_string(settings.counted_rounds()),
                                        "--rank",
                                        std::to_string(rank),
                                        "--ranks",
                                        std::to_string(ranks),
                                        "--folder",
                                        folder,
                                        "--library",
                                        settings.library};
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      const pid_t child = ::fork();
      if (child < 0) fail_run("gpu_nccl: it cannot start another rank");
      if (child == 0) {
        ::execv(self, arguments.data());
        ::_exit(127);
      }
      children_.push_back(child);
    }
  }
  ~Others() {
    for (const pid_t child : children_) ::kill(child, SIGKILL);
    for (const pid_t child : children_) ::waitpid(child, nullptr, 0);
  }
  Others(const Others&) = delete;
  Others& operator=(const Others&) = delete;
  void wait() {
    while (!children_.empty()) {
      int status = 0;
      ::waitpid(children_.back(), &status, 0);
      children_.pop_back();
      if (status != 0) fail_run("gpu_nccl: another rank ended with an error, which stands above");
    }
  }

 private:
  std::vector<pid_t> children_;
};

int visible(const GpuSettings& settings) {
  if (rehearsed(settings)) return 2;
  testing::QuietHost host;
  Registry registry;
  registry.discover({});
  const auto device = testing::make<Device>(registry, host, settings.device, "");
  auto* const answers = static_cast<DeviceAvailability*>(device->query(DeviceAvailability::kId));
  return answers == nullptr ? 1 : answers->usable();
}

int run(const GpuSettings& settings) {
  std::string absent;
  std::unique_ptr<Library> library;
  try {
    library = std::make_unique<Library>(settings.library);
  } catch (const Error& error) {
    absent = error.what();
  }
  if (settings.ranks > 0) {  // started by rank 0
    if (library == nullptr) fail_config(absent);
    Rank rank(settings, *library, settings.folder, settings.rank, settings.ranks);
    measure_all(rank, settings);
    return 0;
  }
  std::vector<Row> rows;
  std::string features = "no NCCL";
  const auto skip = [&](bool alone, const std::string& why) {
    for (const Size& size : kSizes) rows.push_back({.name = row_name(size, alone), .skipped = why});
  };
  if (library == nullptr) {
    skip(true, absent);
    skip(false, absent);
  } else {
    {
      const testing::RendezvousFolder folder;
      Rank alone(settings, *library, folder.path(), 0, 1);
      features = alone.features();
      rows = measure_all(alone, settings);
    }
    const int ranks = visible(settings);
    if (ranks < 2) {
      skip(false, "one GPU is visible, and two ranks of NCCL need one each");
    } else {
      const testing::RendezvousFolder folder;
      Others others(settings, folder.path(), ranks);
      {
        Rank first(settings, *library, folder.path(), 0, ranks);
        for (Row& row : measure_all(first, settings)) rows.push_back(std::move(row));
      }
      others.wait();
    }
  }
  print_rows("gpu_nccl", settings, features, rows);
  return 0;
}

}  // namespace
}  // namespace tenon::bench::gpu

int main(int argc, char** argv) {
  return tenon::bench::gpu::run_gpu_program("gpu_nccl", argc, argv, tenon::bench::gpu::run);
}
