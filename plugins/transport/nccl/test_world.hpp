// For the tests of this folder: ranks as threads, each with its own transport and device, over the fake
// library.
#pragma once

#include "fake/fake_nccl.hpp"
#include "nccl_transport.hpp"

#include "process_world.hpp"

#include <tenon/device.hpp>
#include <tenon/testing/rendezvous.hpp>
#include <tenon/transport.hpp>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tenon::nccl_transport {

/// Host memory that claims to be device memory. Its streams run the operations that the fake library
/// enqueues.
class TestDevice final : public Device, public DeviceStreams, public DeviceEvents {
 public:
  explicit TestDevice(std::string identity = "") : identity_(std::move(identity)) {
    if (identity_.empty()) identity_ = "GPU-" + std::to_string(reinterpret_cast<std::uintptr_t>(this));
  }
  ~TestDevice() override {
    EXPECT_EQ(streams_, 0) << "streams that were not given back";
    EXPECT_EQ(events_, 0) << "events that were not given back";
  }
  void open(const DeviceSpec&) override {}
  MemorySpace space() const override { return MemorySpace::kCuda; }
  void* allocate(std::size_t bytes) override {
    ++allocations;
    return std::calloc(1, bytes);
  }
  void release(void* memory, std::size_t) noexcept override { std::free(memory); }
  void copy(TensorView from, TensorView to) override {
    if (from.bytes() > 0) std::memcpy(to.data, from.data, from.bytes());
  }
  void synchronize() override {}
  std::string_view kernel_choice() const override { return "test"; }
  std::string_view features() const override { return ""; }
  void* query(std::string_view id) override {
    if (id == DeviceStreams::kId) return static_cast<DeviceStreams*>(this);
    if (id == DeviceEvents::kId) return static_cast<DeviceEvents*>(this);
    return nullptr;
  }

  void make_current() override { ++made_current; }
  std::string identity() override { return identity_; }
  void* stream() override { return this; }
  void* make_stream() override {
    ++streams_;
    return new char();
  }
  void release_stream(void* stream) noexcept override {
    --streams_;
    delete static_cast<char*>(stream);
  }
  void* make_event() override {
    ++events_;
    return new Event();
  }
  void release_event(void* event) noexcept override {
    --events_;
    delete static_cast<Event*>(event);
  }
  void record(void* event, void* stream) override {
    *static_cast<Event*>(event) = {stream, fake_nccl_given(stream)};
  }
  void wait(void* event, void*) override { waited_for_compute += static_cast<Event*>(event)->stream == this; }
  bool reached(void* event) override {
    const Event& some = *static_cast<Event*>(event);
    return fake_nccl_ran(some.stream) >= some.given;
  }

  std::atomic<int> allocations{0}, made_current{0}, waited_for_compute{0};

 private:
  struct Event {
    void* stream = nullptr;
    std::uint64_t given = 0;
  };
  std::string identity_;
  std::atomic<int> streams_{0}, events_{0};
};

class TestOptions final : public Options {
 public:
  std::string library = TENON_FAKE_NCCL, interface;
  bool fast = true, shrink = false;
  bool has(std::string_view) const override { return true; }
  bool boolean(std::string_view name) const override { return name == "shrink" ? shrink : fast; }
  std::int64_t integer(std::string_view) const override { return 0; }
  double real(std::string_view) const override { return 0; }
  std::string_view text(std::string_view name) const override {
    return name == "library" ? library : interface;
  }
  std::span<const std::int64_t> integers(std::string_view) const override { return {}; }
  std::span<const double> reals(std::string_view) const override { return {}; }
  std::span<const std::string_view> texts(std::string_view) const override { return {}; }
  void* component_pointer(std::string_view, std::string_view) const override { return nullptr; }
  std::span<const std::string_view> section_names(std::string_view) const override { return {}; }
  const Options& section(std::string_view, std::string_view) const override { return *this; }
};

class NcclWorld final : public testing::ProcessWorld {
 public:
  /// `shrinking`: bit mask of the ranks that keep failed communicators.
  explicit NcclWorld(int ranks, double deadline_s = 30, int shrinking = 0,
                     const std::vector<std::string>& identities = {})
      : ProcessWorld(ranks), clock_(make_wall_clock()), transports_(ranks) {
    const testing::RendezvousFolder folder;
    for (int rank = 0; rank < ranks; ++rank) {
      devices_.push_back(std::make_unique<TestDevice>(identities.empty() ? "" : identities[rank]));
      rendezvous_.push_back(std::make_unique<testing::FolderRendezvous>(folder.path(), rank, ranks));
    }
    errors = each([&](int rank) {
      WorldSpec spec;
      spec.ranks = ranks;
      spec.deadline_s = deadline_s;
      spec.clock = clock_.get();
      spec.rendezvous = rendezvous_[rank].get();
      TestOptions options;
      options.shrink = (shrinking >> rank & 1) != 0;
      at(rank) = std::make_unique<NcclTransport>(options);
      at(rank)->connect(spec);
      static_cast<DeviceTransport*>(at(rank)->query(DeviceTransport::kId))->attach(rank, device(rank));
    });
  }
  // Each rank waits for the others at its end, as processes do.
  ~NcclWorld() override {
    each([&](int rank) { at(rank).reset(); });
  }
  using ProcessWorld::open;
  std::unique_ptr<Communicator> open(int rank, const GroupSpec& spec) override {
    return at(rank)->open(rank, spec);
  }
  void cancel(int rank, std::string_view reason) override { at(rank)->cancel(reason); }
  LinkCounts counts(int rank, Purpose purpose) override { return at(rank)->counts(rank, purpose); }
  void kill(int rank) override { at(rank).reset(); }
  void end(int rank) override { at(rank).reset(); }
  bool reduces(DType dtype) const override { return dtype != DType::kI16 && dtype != DType::kU16; }

  TestDevice& device(int rank) { return *devices_[rank]; }
  std::unique_ptr<NcclTransport>& at(int rank) { return transports_[rank]; }

  std::vector<std::string> errors;  ///< of connecting

 private:
  std::vector<std::string> each(const std::function<void(int)>& body) {
    std::vector<std::string> said(transports_.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (const std::exception& error) {
          said[rank] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return said;
  }
  std::unique_ptr<Clock> clock_;
  std::vector<std::unique_ptr<TestDevice>> devices_;
  std::vector<std::unique_ptr<testing::FolderRendezvous>> rendezvous_;
  std::vector<std::unique_ptr<NcclTransport>> transports_;
};

}  // namespace tenon::nccl_transport
