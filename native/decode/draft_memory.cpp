#include "decode/draft_memory.h"

#include <algorithm>

namespace ultrafast {

const DraftIndex* DraftMemory::find(const std::string& domain) {
  const auto it = std::find_if(domains_.begin(), domains_.end(), [&](const auto& entry) { return entry.first == domain; });
  if (it == domains_.end()) return nullptr;
  std::rotate(domains_.begin(), it, it + 1);
  return domains_.front().second.get();
}

void DraftMemory::remember(const std::string& domain, const std::vector<int32_t>& tokens) {
  if (tokens.empty()) return;
  if (find(domain) == nullptr) {
    if (domains_.size() == kMaxDomains) domains_.pop_back();
    domains_.emplace(domains_.begin(), domain, std::make_unique<DraftIndex>(kTokens));
  }
  DraftIndex& index = *domains_.front().second;
  for (const int32_t token : tokens) index.append(token);
  index.append(DraftIndex::kBorder);
}

}  // namespace ultrafast
