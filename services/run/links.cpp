#include "run/links.hpp"

#include "control/control_wire.hpp"
#include "plugin/guard.hpp"
#include "record/build_info.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace tenon::train {
namespace {

/// The rank's text exchange, for transports that must exchange addresses before they can send.
class TextRendezvous final : public Rendezvous {
 public:
  TextRendezvous(TextExchange& texts, int rank, int ranks) : texts_(texts), rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::vector<std::string> exchange(const std::string& text) override { return texts_.exchange(rank_, text); }

 private:
  TextExchange& texts_;
  int rank_, ranks_;
};

/// Between processes. The control plane ends its waits by itself, at a failure too.
class RemoteTexts final : public TextExchange {
 public:
  RemoteTexts(ControlClient& control, ControlLane lane) : control_(control), lane_(lane) {}
  std::vector<std::string> exchange(int, const std::string& text) override {
    const OutsideCall waits;
    return control_.exchange(lane_, text);
  }
  void cancel(const std::string&) override {}

 private:
  ControlClient& control_;
  ControlLane lane_;
};

}  // namespace

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name[0] == '\0' ? "127.0.0.1" : name;
}

std::unique_ptr<ControlServer> Links::make_control_server() {
  ControlServerSpec spec;
  spec.ranks = place_.ranks;
  spec.deadline_s = settings_.run.deadline;
  spec.address = "0.0.0.0";
  if (!place_.control.empty()) {
    const auto [host, port] = control_endpoint(place_.control);
    if (host == "127.0.0.1" || host == "localhost") spec.address = "127.0.0.1";
    spec.port = port;
  } else {
    place_.token = random_control_token();
  }
  spec.token = place_.token;
  return std::make_unique<ControlServer>(std::move(spec));
}

// A transport with a launcher of its own knows the rank of this process, and carries the first address.
void Links::find_place() {
  auto* launched = transport ? static_cast<Rendezvous*>(transport->query(Rendezvous::kId))
                             : static_cast<Rendezvous*>(nullptr);
  if (launched == nullptr || place_.rank >= 0) {
    if (place_.rank >= 0 && place_.hosts_control) control_server = make_control_server();
    return;
  }
  place_.rank = launched->rank();
  place_.ranks = launched->ranks();
  std::string address;
  if (place_.rank == 0) {
    control_server = make_control_server();
    address = fmt::format("{} {}:{}", place_.token, host_name(), control_server->port());
  }
  const std::vector<std::string> all = launched->exchange(host_name() + " " + address);
  place_.local_ranks = static_cast<int>(std::count_if(all.begin(), all.end(), [&](const std::string& text) {
    return text.substr(0, text.find(' ')) == host_name();
  }));
  const std::string& first = all[0];
  const auto token = first.find(' ') + 1, server = first.find(' ', token) + 1;
  place_.token = first.substr(token, server - 1 - token);
  place_.control = first.substr(server);
  if (place_.local_ranks == place_.ranks)
    place_.control = "127.0.0.1" + place_.control.substr(place_.control.rfind(':'));
}

void Links::open_control() {
  const auto ranks = static_cast<int>(settings_.parallel.world());
  const auto trainers = static_cast<int>(settings_.parallel.trainers());
  const auto cancel = [this](const std::string& text) {
    training_hub->cancel(text);
    end_hub->cancel(text);
    saving_hub->cancel(text);
    if (!connected.load()) return;
    try {
      transport->cancel(text);
    } catch (const std::exception& error) {  // the run has failed already
      std::fprintf(stderr, "tenon: %s\n", error.what());
    }
  };
  if (place_.rank < 0) {
    training_hub = std::make_unique<StringAllGather>(trainers, clock_, settings_.run.deadline);
    end_hub = std::make_unique<StringAllGather>(trainers, clock_, settings_.run.deadline);
    saving_hub = std::make_unique<StringAllGather>(trainers, saver_clock_, settings_.run.deadline);
    auto inprocess = make_inprocess_control(ranks, settings_.run.deadline, clock_, trainers);
    inprocess->on_failure(cancel);
    control = std::move(inprocess);
    return;
  }
  if (settings_.transport.simulated_clock) {
    fail_config(
        "transport.clock: the simulated clock orders the ranks of one process; start this run without a "
        "launcher, or use the wall clock");
  }
  if (ranks != place_.ranks) {
    fail_config(fmt::format(
        "{} processes were started, but this configuration makes a world of {} ranks ([parallel] ranks x "
        "grid + servers); start {} processes, or change it, e.g. --set parallel.ranks={}",
        place_.ranks, ranks, ranks, place_.ranks));
  }
  const BuildInfo build = build_info();
  auto client = std::make_unique<ControlClient>(
      ControlClientSpec{place_.control, place_.rank, place_.ranks, trainers, settings_.run.deadline,
                        place_.token, fmt::format("tenon {} {}", build.version, build.git)});
  training_hub = std::make_unique<RemoteTexts>(*client, ControlLane::kTraining);
  saving_hub = std::make_unique<RemoteTexts>(*client, ControlLane::kSaving);
  end_hub = std::make_unique<RemoteTexts>(*client, ControlLane::kEnds);
  world_hub = std::make_unique<RemoteTexts>(*client, ControlLane::kWorld);
  client->on_failure(cancel);
  control_client = client.get();
  control = std::move(client);
}

void Links::connect(WorldSpec spec) {
  if (world_hub != nullptr) {
    rendezvous = std::make_unique<TextRendezvous>(*world_hub, place_.rank, place_.ranks);
    spec.rendezvous = rendezvous.get();
  }
  transport->connect(spec);
  connected = true;
  // It came while there was nothing to cancel.
  if (world_hub != nullptr && control->failed()) transport->cancel(control->failure());
}

std::uint64_t Links::bytes_sent() const {
  std::uint64_t sum = 0;
  if (!transport) return sum;
  for (int purpose = 0; purpose < kPurposes; ++purpose) {
    sum += transport->counts(std::max(0, place_.rank), static_cast<Purpose>(purpose)).bytes_sent;
  }
  return sum;
}

}  // namespace tenon::train
