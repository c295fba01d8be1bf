// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {IUsdc} from "./IUsdc.sol";

/// What one depositor has in the gateway. One storage slot, because settlement reads and writes it for every payer.
struct Balance {
    /// What can be spent.
    uint96 available;
    /// What is on its way out by the trustless exit. Settlement may still take it, after `available` is used up.
    uint96 withdrawing;
    /// From this block on `withdrawing` can be taken out. 0 when nothing is withdrawing.
    uint64 withdrawalBlock;
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

    mapping(address depositor => Balance balance) private _balances;

    error UnsupportedToken(address token, address supportedToken);

    modifier onlySupported(address token_) {
        if (token_ != address(token)) revert UnsupportedToken(token_, address(token));
        _;
    }

    constructor(IUsdc token_) {
        token = token_;
    }

    function totalBalance(address token_, address depositor) external view onlySupported(token_) returns (uint256) {
        return _total(_balances[depositor]);
    }

    function availableBalance(address token_, address depositor)
        external
        view
        onlySupported(token_)
        returns (uint256)
    {
        return _balances[depositor].available;
    }

    function withdrawingBalance(address token_, address depositor)
        external
        view
        onlySupported(token_)
        returns (uint256)
    {
        return _balances[depositor].withdrawing;
    }

    /// What `withdraw` would pay in this block: all that is withdrawing, or nothing yet.
    function withdrawableBalance(address token_, address depositor)
        external
        view
        onlySupported(token_)
        returns (uint256)
    {
        Balance memory balance = _balances[depositor];
        return block.number < balance.withdrawalBlock ? 0 : balance.withdrawing;
    }

    function withdrawalBlock(address token_, address depositor)
        external
        view
        onlySupported(token_)
        returns (uint256)
    {
        return _balances[depositor].withdrawalBlock;
    }

    function _load(address depositor) internal view returns (Balance memory) {
        return _balances[depositor];
    }

    function _store(address depositor, Balance memory balance) internal {
        _balances[depositor] = balance;
    }

    /// @dev Never reverts within a batch: deposits refuse to bring the gateway above the largest uint96, and nothing
    ///      else adds to the sum of all balances.
    function _credit(address depositor, uint256 value) internal {
        _balances[depositor].available += value.toUint96();
    }

    function _total(Balance memory balance) internal pure returns (uint256) {
        return uint256(balance.available) + balance.withdrawing;
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
