// Objects of a rank by key. The map holds weak pointers, so an object ends with its last holder.
#include <tenon/shared_objects.hpp>

#include <map>
#include <mutex>
#include <string>
#include <utility>

TENON_ABI_BEGIN

SharedObject::~SharedObject() = default;
SharedObjects::~SharedObjects() = default;

namespace {

class ObjectsByKey final : public SharedObjects {
 public:
  std::shared_ptr<SharedObject> get(std::string_view key,
                                    const std::function<std::unique_ptr<SharedObject>()>& make) override {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<SharedObject>& known = objects_[std::string(key)];
    if (auto held = known.lock()) return held;
    // The count of holders is made here and not in a plugin, because it outlives the plugin's library.
    std::shared_ptr<SharedObject> made(make().release(), [](SharedObject* object) { delete object; });
    known = made;
    return made;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<SharedObject>, std::less<>> objects_;
};

}  // namespace

std::unique_ptr<SharedObjects> make_shared_objects() {
  return std::make_unique<ObjectsByKey>();
}

TENON_ABI_END
