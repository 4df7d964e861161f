// Properties P1, P2, P6 and P15 of moves where every rank is a process that mpirun started: this program is
// one of them. Usage: mpirun -n N model_processes TRANSPORT. Rank 0 prints the trials, every rank its errors.
#include "adjoints.hpp"
#include "flights.hpp"
#include "movement.hpp"

#include <tenon/clock.hpp>
#include <tenon/testing/mesh_ranks.hpp>

#include <cstdio>
#include <exception>

namespace model_parallel {
namespace {

/// This process as a rank of one mesh after another.
class Process {
 public:
  explicit Process(std::string_view transport) {
    registry_.discover({});
    transport_ = tenon::testing::make<tenon::Transport>(registry_, host_, transport, "");
    rendezvous_ = static_cast<tenon::Rendezvous*>(transport_->query(tenon::Rendezvous::kId));
    if (rendezvous_ == nullptr) tenon::fail_config("this transport has no processes");
    transport_->connect(
        {.ranks = ranks(), .deadline_s = 30, .link = {}, .clock = clock_.get(), .rendezvous = rendezvous_});
    for (int rank = 0; rank < ranks(); ++rank) members_.push_back(rank);
  }

  int rank() const { return rendezvous_->rank(); }
  int ranks() const { return rendezvous_->ranks(); }

  void run(const std::vector<int>& mesh, const std::function<void(Mesh&)>& body) {
    try {
      tenon::testing::MeshEnds ends(*transport_, mesh, members_, rank(), std::to_string(++meshes_) + ".");
      body(ends.mesh());
      if (ends.mesh().all() != nullptr) ends.mesh().all()->barrier();
    } catch (const tenon::Error& error) {
      transport_->cancel(error.what());
      throw;
    }
  }

 private:
  tenon::testing::QuietHost host_;
  tenon::Registry registry_;
  std::unique_ptr<tenon::Clock> clock_ = tenon::make_wall_clock();
  tenon::testing::Made<tenon::Transport> transport_;
  tenon::Rendezvous* rendezvous_ = nullptr;
  std::vector<int> members_;
  int meshes_ = 0;
};

class Property : public ::testing::Test {
 public:
  explicit Property(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  std::function<void()> body_;
};

void add(const char* suite, const std::string& name, const std::function<void()>& body) {
  ::testing::RegisterTest(suite, name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [body]() -> Property* { return new Property(body); });
}

void add_properties(Process& process) {
  const OnMesh on = [&process](const auto& mesh, const auto& body) { process.run(mesh, body); };
  const int ranks = process.ranks();
  for (const tenon::Primitive& primitive : tenon::primitives()) {
    const Trial trial{primitive.name, ranks, 1, 8};
    const std::string name(primitive.name);
    add("P2_AdjointIsTheTransposeExactly", name, [=] { expect_adjoints(on, trial); });
    add("P2_ForwardIsTheTensorInItsNewPlace", name, [=] { expect_moved(on, {trial.name, ranks, 1, 4}); });
  }
  add("P1_ThereAndBackIsTheIdentity", "RandomRepartitions", [=] { expect_there_and_back(on, ranks, 1); });
  add("P6_WindowsHoldTheTensor", "RandomHalos", [=] { expect_moved(on, {"halo_exchange", ranks, 2, 20}); });
  add("P15_SeveralInFlight", "BroadcastsAndSums", [=] { expect_pairs_in_flight(on, ranks, 1); });
}

}  // namespace
}  // namespace model_parallel

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: mpirun -n N %s TRANSPORT [options of GoogleTest]\n", words[0]);
    return 2;
  }
  try {
    model_parallel::Process process(words[1]);
    model_parallel::add_properties(process);
    if (process.rank() != 0) GTEST_FLAG_SET(brief, true);
    ::testing::InitGoogleTest(&count, words);
    return RUN_ALL_TESTS();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
