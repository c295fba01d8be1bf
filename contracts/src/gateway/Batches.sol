// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

import {Authorization, Authorizations, SkipReason} from "./Authorizations.sol";
import {Balances, PackedBalance} from "./Balances.sol";
import {Roles} from "./Roles.sol";

/// @title Batches
///
/// @notice Settles many signed payments in one transaction, and checks every signature itself: a stolen relayer key can
///         delay payments but not invent one.
///
/// @dev A bad row never hurts its neighbours: it is skipped with its reason, its nonce stays unused. Only a wrong batch
///      (its number, its size, its sender, its encoding) reverts.
abstract contract Batches is Roles, Balances, Authorizations, ReentrancyGuardTransient {
    /// Even when every payer and every payee is new, so many rows fit the gas of one transaction (2^24 since Osaka) and
    /// the 128 KiB a node takes: no batch that is accepted here can be too large for the chain.
    uint256 public constant BATCH_AUTHORIZATIONS_MAX = 250;

    /// Batches are numbered from 1 without a gap.
    uint64 public lastBatchId;

    /// What is still in memory while a batch is walked through. Consecutive rows to one payee cost one write of its
    /// balance together, not each.
    struct Tally {
        address payee;
        uint256 credit;
        uint256 settledCount;
        uint256 settledValue;
    }

    /// @param receiptRoot   The Merkle root of the receipts of the requests that this batch pays for
    event BatchSettled(
        uint64 indexed batchId,
        bytes32 indexed receiptRoot,
        uint256 authorizationCount,
        uint256 settledCount,
        uint256 settledValue
    );

    /// What a run of rows paid to one payee. Over a batch these are worth as much as its `PaymentSettled` events.
    event PayeeCredited(uint64 indexed batchId, address indexed payee, uint256 value);

    /// @param required   What the row needed, by reason: the value, the start or end of its window, the signer
    /// @param found      What there was instead: the balance, the time, the address recovered
    event AuthorizationSkipped(
        uint64 indexed batchId,
        address indexed authorizer,
        bytes32 indexed nonce,
        SkipReason reason,
        uint256 required,
        uint256 found
    );

    error BatchOutOfSequence(uint64 batchId, uint64 nextBatchId);
    error BatchTooLarge(uint256 authorizationCount, uint256 authorizationCountMax);

    /// Settles the next batch. Rows are taken in order; rows of one payee next to each other are cheapest.
    ///
    /// @dev A batch without rows is legal: requests paid from credit have receipts and no authorization.
    ///
    /// @param batchId   The last batch's plus one. So a batch that is sent twice, because its fate was unknown, settles
    ///                  once and then reverts
    function settleBatch(uint64 batchId, bytes32 receiptRoot, Authorization[] calldata authorizations)
        external
        nonReentrant
        whenNotPaused
        onlyRelayer
    {
        // 1. Refuse any batch but the next, and one that is too large.
        if (batchId != lastBatchId + 1) revert BatchOutOfSequence(batchId, lastBatchId + 1);
        if (authorizations.length > BATCH_AUTHORIZATIONS_MAX) {
            revert BatchTooLarge(authorizations.length, BATCH_AUTHORIZATIONS_MAX);
        }
        lastBatchId = batchId;

        // 2. Settle or skip row by row, with the sum of the current payee in memory.
        Tally memory tally;
        bytes32 separator = _domainSeparatorV4();
        for (uint256 i = 0; i < authorizations.length; ++i) {
            _settle(tally, authorizations[i], batchId, separator);
        }

        // 3. Write the last sum down.
        _closePayee(tally, batchId);

        // 4. Say what became of it.
        emit BatchSettled(batchId, receiptRoot, authorizations.length, tally.settledCount, tally.settledValue);
    }

    function _settle(Tally memory tally, Authorization calldata row, uint64 batchId, bytes32 separator) private {
        // 1. What the payer was credited by the rows before must be in storage before its balance is read from there.
        (address from, address to, uint256 value) = (row.from, row.to, row.value);
        if (from == tally.payee) _closePayee(tally, batchId);

        // 2. Use the authorization up, or skip a row that must not settle.
        PackedBalance storage balance = _packed(from);
        uint256 word = balance.word;
        (SkipReason reason, uint256 required, uint256 found) = _use(row, _totalOf(word), separator);
        if (reason != SkipReason.None) {
            emit AuthorizationSkipped(batchId, from, row.nonce, reason, required, found);
            return;
        }

        // 3. Move the value from the payer, in storage, to the payee, in memory.
        balance.word = _debited(word, value);
        if (to != tally.payee) {
            _closePayee(tally, batchId);
            tally.payee = to;
        }
        // The value is at most the payer's balance, and all balances together are at most `GATEWAY_BALANCE_MAX`.
        unchecked {
            tally.credit += value;
            tally.settledCount += 1;
            tally.settledValue += value;
        }
    }

    function _closePayee(Tally memory tally, uint64 batchId) private {
        uint256 credit = tally.credit;
        if (credit == 0) return;
        _credit(tally.payee, credit);
        emit PayeeCredited(batchId, tally.payee, credit);
        tally.credit = 0;
    }
}
