// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

/// A slice of `Authorizations` for the model checker: whether each nonce of one payer has paid, and how often one of them has. The bits that
/// the gateway packs 256 nonces into are left out: z3 does not decide them.
contract NonceOnce {
    mapping(bytes32 => bool) private used;
    bytes32 private immutable watched;
    uint256 private timesPaid;

    constructor(bytes32 nonce) {
        watched = nonce;
    }

    function settle(bytes32 nonce) external {
        if (used[nonce]) return;
        used[nonce] = true;
        if (nonce == watched) timesPaid += 1;
        assert(timesPaid <= 1);
    }
}
