// The codes of rejected writes, with the meaning of each. Pure.

export const codes = {
  token_stale: 'The token is not the newest, its lease has ended, or its sequence was used before.',
  lease_expired: 'The token is the newest, but its lease has expired, and the policy requires a live one.',
  lease_mismatch: 'The lease_id is not that of the token’s lease.',
  token_unknown: 'This token was never granted.',
  token_required: 'The write has no token.',
  version_mismatch: 'The record has another version than the write requires.',
  token_reused: 'The transaction with this token and sequence was committed before.',
  truncate: 'A protected table whose rows belong to many resources was to be truncated.',
};

export const codeNames = Object.keys(codes);
