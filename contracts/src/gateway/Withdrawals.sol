// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

import {Balance, Balances} from "./Balances.sol";
import {IUsdc} from "./IUsdc.sol";

/// @title Withdrawals
///
/// @notice The trustless exit. It needs no operator, no signature but the transaction's, and no permission: it works
///         while the gateway is paused, and no role can lengthen, stop or redirect it. What it asks for is patience,
///         long enough for authorizations that were already signed to be settled first.
abstract contract Withdrawals is Balances, ReentrancyGuardTransient {
    using SafeERC20 for IUsdc;

    /// About a month of Arc's half-second blocks. Nobody can deploy a gateway whose exit never opens.
    uint256 public constant WITHDRAWAL_DELAY_MAX = 5_000_000;

    /// Blocks between `initiateWithdrawal` and `withdraw`. Fixed for good.
    uint256 public immutable withdrawalDelay;

    /// Circle Gateway's events, topics and all.
    event WithdrawalInitiated(
        address indexed token,
        address indexed depositor,
        uint256 value,
        uint256 remainingAvailable,
        uint256 totalWithdrawing,
        uint256 withdrawalBlock
    );
    event WithdrawalCompleted(address indexed token, address indexed depositor, uint256 value);

    error WithdrawalDelayOutOfRange(uint256 delay, uint256 delayMax);
    error WithdrawalValueZero();
    error WithdrawalExceedsAvailable(uint256 value, uint256 available);
    error WithdrawalNotInitiated(address depositor);
    error WithdrawalTooEarly(uint256 currentBlock, uint256 withdrawalBlock);

    constructor(uint256 withdrawalDelay_) {
        // Without any delay the exit and the settlement of a served request would race in the same block.
        if (withdrawalDelay_ == 0 || withdrawalDelay_ > WITHDRAWAL_DELAY_MAX) {
            revert WithdrawalDelayOutOfRange(withdrawalDelay_, WITHDRAWAL_DELAY_MAX);
        }
        withdrawalDelay = withdrawalDelay_;
    }

    /// Starts a withdrawal of the caller's own balance. A second call adds to the first and restarts the wait.
    function initiateWithdrawal(address token_, uint256 value) external nonReentrant onlySupported(token_) {
        // 1. Refuse nothing, and more than there is.
        if (value == 0) revert WithdrawalValueZero();
        Balance memory balance = _load(msg.sender);
        if (value > balance.available) revert WithdrawalExceedsAvailable(value, balance.available);

        // 2. Move it from available to withdrawing, and start the wait.
        balance.available -= uint96(value);
        balance.withdrawing += uint96(value);
        balance.withdrawalBlock = uint64(block.number + withdrawalDelay);
        _store(msg.sender, balance);

        // 3. Say so.
        emit WithdrawalInitiated(
            token_, msg.sender, value, balance.available, balance.withdrawing, balance.withdrawalBlock
        );
    }

    /// Pays the caller all that is withdrawing: what was asked for, less what settlement took meanwhile.
    function withdraw(address token_) external nonReentrant onlySupported(token_) {
        // 1. Refuse when there is nothing, or when it is too early.
        Balance memory balance = _load(msg.sender);
        uint256 value = balance.withdrawing;
        if (value == 0) revert WithdrawalNotInitiated(msg.sender);
        if (block.number < balance.withdrawalBlock) revert WithdrawalTooEarly(block.number, balance.withdrawalBlock);

        // 2. Empty it.
        balance.withdrawing = 0;
        balance.withdrawalBlock = 0;
        _store(msg.sender, balance);

        // 3. Say so.
        emit WithdrawalCompleted(token_, msg.sender, value);

        // 4. Pay.
        token.safeTransfer(msg.sender, value);
    }
}
