// Buckets in flight of ddp.hpp.
#include "ddp.hpp"

namespace tenon::sync_basic {

void Ddp::start(Replica& replica) {
  SyncBase::start(replica);
  elementwise_ = &replica.device().family<Elementwise>();
  transfers_.reserve(replica.buckets().size());
  group_ = replica.group(Purpose::kGradient);
}

void Ddp::on_gradients_ready(const Bucket& bucket) {
  if (group_ == nullptr || group_->size() == 1) return;
  transfers_.push_back({group_->start_all_reduce(bucket.gradients, ReduceOp::kSum), bucket.gradients});
}

void Ddp::finish_gradients() {
  if (transfers_.empty()) return;
  // A request is waited for once, even if a wait throws and the core later goes on without a lost rank.
  struct Forget {
    std::vector<Transfer>& transfers;
    ~Forget() { transfers.clear(); }
  } forget{transfers_};
  const double factor = 1.0 / group_->size();
  for (const Transfer& transfer : transfers_) {
    group_->wait(transfer.request);
    elementwise_->scale(transfer.gradients, factor);  // while later buckets are still on their way
  }
}

void Ddp::on_membership(const Membership&) {
  transfers_.clear();  // of the old epoch, cancelled with its communicator
  group_ = replica().group(Purpose::kGradient);
}

}  // namespace tenon::sync_basic
