// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

import {Authorization, Authorizations, SkipReason} from "./Authorizations.sol";
import {Balance, Balances} from "./Balances.sol";
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

    /// What is still in memory while a batch is walked through: the payer and the payee of the last row. Consecutive
    /// rows of one payer to one payee cost two storage writes together, not each.
    struct Tally {
        address payer;
        /// What the payer had when its rows began, and what is left of it.
        uint256 opening;
        uint256 funds;
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

    /// What a run of rows did to one account. Over a batch they sum to zero.
    event BalanceChanged(uint64 indexed batchId, address indexed account, int256 delta);

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

    /// Settles the next batch. Rows are taken in order; rows of one payer next to each other are cheapest.
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

        // 2. Settle or skip row by row, with the sums of the current payer and payee in memory.
        Tally memory tally;
        bytes32 separator = _domainSeparatorV4();
        for (uint256 i = 0; i < authorizations.length; ++i) {
            _settle(tally, authorizations[i], batchId, separator);
        }

        // 3. Write the last sums down.
        _closePayer(tally, batchId);
        _closePayee(tally, batchId);

        // 4. Say what became of it.
        emit BatchSettled(batchId, receiptRoot, authorizations.length, tally.settledCount, tally.settledValue);
    }

    function _settle(Tally memory tally, Authorization calldata row, uint64 batchId, bytes32 separator) private {
        // 1. Bring the payer's balance into memory.
        address from = row.from;
        if (from != tally.payer) _openPayer(tally, from, batchId);

        // 2. Use the authorization up, or skip a row that must not settle.
        (SkipReason reason, uint256 required, uint256 found) = _use(row, tally.funds, separator);
        if (reason != SkipReason.None) {
            emit AuthorizationSkipped(batchId, from, row.nonce, reason, required, found);
            return;
        }

        // 3. Move the value from payer to payee, in memory.
        (address to, uint256 value) = (row.to, row.value);
        if (to != tally.payee) _openPayee(tally, to, batchId);
        // The value is at most the funds, and all funds together at most `GATEWAY_BALANCE_MAX`.
        unchecked {
            tally.funds -= value;
            tally.credit += value;
            tally.settledCount += 1;
        }
    }

    function _openPayer(Tally memory tally, address payer, uint64 batchId) private {
        // What the new payer was just credited must be in storage before its balance is read from there. The other way
        // round cannot happen: nobody pays itself, so the open payer is never the payee that is still in memory.
        _closePayer(tally, batchId);
        if (payer == tally.payee) _closePayee(tally, batchId);
        tally.payer = payer;
        tally.opening = _total(_load(payer));
        tally.funds = tally.opening;
    }

    function _closePayer(Tally memory tally, uint64 batchId) private {
        uint256 debit = tally.opening - tally.funds;
        if (debit == 0) return;
        Balance memory balance = _load(tally.payer);
        _debit(balance, debit);
        _store(tally.payer, balance);
        tally.settledValue += debit;
        emit BalanceChanged(batchId, tally.payer, -int256(debit));
    }

    function _openPayee(Tally memory tally, address payee, uint64 batchId) private {
        _closePayee(tally, batchId);
        tally.payee = payee;
    }

    function _closePayee(Tally memory tally, uint64 batchId) private {
        if (tally.credit == 0) return;
        _credit(tally.payee, tally.credit);
        emit BalanceChanged(batchId, tally.payee, int256(tally.credit));
        tally.credit = 0;
    }
}
