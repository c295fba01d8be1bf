// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {IUsdc} from "./IUsdc.sol";

/// What one depositor has in the gateway. Stored as one word, because settlement reads and writes it for every payment.
struct Balance {
    /// What can be spent.
    uint96 available;
    /// What is on its way out by the trustless exit. Settlement may still take it, after `available` is used up.
    uint96 withdrawing;
    /// From this block on `withdrawing` can be taken out. 0 when nothing is withdrawing.
    uint64 withdrawalBlock;
}

/// A `Balance` in one word, its first field in the lowest bits. Packed by hand it is one read and one write, where the
/// compiler makes two of each.
struct PackedBalance {
    uint256 word;
}

/// @title Balances
///
/// @notice Who owns how much of the USDC that the gateway holds. The names of the views are Circle Gateway's.
///
/// @dev One gateway serves one token. An authorization does not name a token, so with two of them a signature meant for
///      one could be settled in the other. The token stays an argument to keep Circle's interface, and is checked.
abstract contract Balances {
    using SafeCast for uint256;

    IUsdc public immutable token;

    mapping(address depositor => PackedBalance balance) private _balances;

    error UnsupportedToken(address token, address supportedToken);

    modifier onlySupported(address token_) {
        if (token_ != address(token)) revert UnsupportedToken(token_, address(token));
        _;
    }

    constructor(IUsdc token_) {
        token = token_;
    }

    function totalBalance(address token_, address depositor) external view onlySupported(token_) returns (uint256) {
        return _total(_load(depositor));
    }

    function availableBalance(address token_, address depositor)
        external
        view
        onlySupported(token_)
        returns (uint256)
    {
        return _load(depositor).available;
    }

    function withdrawingBalance(address token_, address depositor)
        external
        view
        onlySupported(token_)
        returns (uint256)
    {
        return _load(depositor).withdrawing;
    }

    /// What `withdraw` would pay in this block: all that is withdrawing, or nothing yet.
    function withdrawableBalance(address token_, address depositor)
        external
        view
        onlySupported(token_)
        returns (uint256)
    {
        Balance memory balance = _load(depositor);
        return block.number < balance.withdrawalBlock ? 0 : balance.withdrawing;
    }

    function withdrawalBlock(address token_, address depositor)
        external
        view
        onlySupported(token_)
        returns (uint256)
    {
        return _load(depositor).withdrawalBlock;
    }

    function _load(address depositor) internal view returns (Balance memory) {
        return _unpack(_balances[depositor].word);
    }

    function _store(address depositor, Balance memory balance) internal {
        _balances[depositor].word = _pack(balance);
    }

    /// Where the balance is, for settlement: its place is computed once for reading and writing.
    function _packed(address depositor) internal view returns (PackedBalance storage) {
        return _balances[depositor];
    }

    function _pack(Balance memory balance) private pure returns (uint256 word) {
        word = uint256(balance.withdrawalBlock) << 192 | uint256(balance.withdrawing) << 96 | balance.available;
    }

    function _unpack(uint256 word) private pure returns (Balance memory) {
        // Each cast drops the bits of the fields above.
        return Balance(uint96(word), uint96(word >> 96), uint64(word >> 192));
    }

    /// @dev Never reverts within a batch: deposits refuse to bring the gateway above the largest uint96, and nothing
    ///      else adds to the sum of all balances.
    function _credit(address depositor, uint256 value) internal {
        Balance memory balance = _load(depositor);
        balance.available += value.toUint96();
        _store(depositor, balance);
    }

    function _total(Balance memory balance) internal pure returns (uint256) {
        return uint256(balance.available) + balance.withdrawing;
    }

    /// What a packed balance comes to.
    function _totalOf(uint256 word) internal pure returns (uint256) {
        // Two numbers of 96 bits have a sum of at most 97.
        unchecked {
            return uint256(uint96(word)) + uint96(word >> 96);
        }
    }

    /// `_debit` of a packed balance. Returns the new word.
    function _debited(uint256 word, uint256 value) internal pure returns (uint256) {
        // `available` is in the lowest bits and covers the value, so the subtraction reaches no other field.
        unchecked {
            if (value <= uint96(word)) return word - value;
        }
        Balance memory balance = _unpack(word);
        _debit(balance, value);
        return _pack(balance);
    }

    /// Takes from `available` first, then from `withdrawing`, so that starting a withdrawal frees nobody from paying.
    ///
    /// @dev Changes the copy in memory; the caller stores it. The caller has checked that the total covers the value;
    ///      one that has not gets a revert, never a wrong balance.
    function _debit(Balance memory balance, uint256 value)
        internal
        pure
        returns (uint256 fromAvailable, uint256 fromWithdrawing)
    {
        fromAvailable = value < balance.available ? value : balance.available;
        fromWithdrawing = value - fromAvailable;
        balance.available -= fromAvailable.toUint96();
        balance.withdrawing -= fromWithdrawing.toUint96();
        if (balance.withdrawing == 0) balance.withdrawalBlock = 0;
    }
}
